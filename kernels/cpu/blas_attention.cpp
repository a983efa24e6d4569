// Attention out of matrix products of a tuned library, with the whole score matrix in memory.
#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <limits>
#include <vector>

#include "kernels/cpu/blas_product.hpp"
#include "kernels/cpu/rows.hpp"
#include "kernels/cpu/softmax.hpp"
#include "kernels/device/cpu_device.hpp"
#include "kernels/kernel.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

/// A tensor as fp32 rows: itself when it already is that, else a copy made at the start of a launch (or, for a result,
/// written back at the end).
struct Operand {
  Tensor tensor;
  float* copy = nullptr;  // [B, heads, S, D]
  bool direct = false;
  std::vector<unsigned char> finite;  // by head: no infinity or NaN in it

  std::int64_t stride() const { return direct ? tensor.stride[2] : tensor.extent[3]; }
  float* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    if (direct) {
      return static_cast<float*>(tensor.data) + b * tensor.stride[0] + h * tensor.stride[1] + i * tensor.stride[2];
    }
    return copy + ((b * tensor.extent[1] + h) * tensor.extent[2] + i) * tensor.extent[3];
  }
};

Operand operand(const Tensor& tensor, float* copy) {
  Operand made;
  made.tensor = tensor;
  made.copy = copy;
  made.direct = tensor.dtype == Dtype::kFp32 && tensor.stride[3] == 1 && tensor.stride[2] >= tensor.extent[3];
  made.finite.resize(static_cast<std::size_t>(tensor.extent[0] * tensor.extent[1]));
  return made;
}

/// Parts of the workspace. The copies of q, k and v become those of o, dk and dv when their values are used up.
struct Scratch {
  float *q, *k, *v, *dout, *dq, *ds;
};

Scratch carve(const Problem& p, bool backward, Carver& workspace) {
  const std::int64_t queries = p.batch * p.heads * p.seq_q * p.head_dim;
  const std::int64_t keys = p.batch * p.kv_heads * p.seq_k * p.head_dim;
  Scratch s{};
  s.q = workspace.take<float>(queries);
  s.k = workspace.take<float>(keys);
  s.v = workspace.take<float>(keys);
  if (!backward) return s;
  s.dout = workspace.take<float>(queries);
  s.dq = workspace.take<float>(queries);
  s.ds = workspace.take<float>(p.batch * p.heads * p.seq_q * p.seq_k);
  return s;
}

/// Rows per block so that `heads` matrices of `rows` rows keep every thread busy: whole matrices where they divide
/// evenly or are many, else the fewest blocks that do.
std::int64_t block_rows(std::int64_t heads, std::int64_t rows, int threads) {
  std::int64_t blocks = 1;
  while (heads * blocks % threads != 0 && heads * blocks < 4 * threads && blocks < rows) ++blocks;
  return std::max<std::int64_t>(1, (rows + blocks - 1) / std::max<std::int64_t>(1, blocks));
}

class Blas : public PreparedKernel {
 public:
  Blas(const AttentionArgs& args, CpuDevice& device) : args_(args), p_(args.problem), device_(device) {
    const bool backward = args.dout.data != nullptr;
    Carver workspace(args.workspace);
    const Scratch s = carve(p_, backward, workspace);
    group_ = p_.kv_heads == 0 ? 1 : p_.heads / p_.kv_heads;
    masked_ = p_.causal || p_.window_left >= 0;
    weights_ = static_cast<float*>(args.saved);
    ds_ = s.ds;
    q_ = operand(args.q, s.q);
    k_ = operand(args.k, s.k);
    v_ = operand(args.v, s.v);
    o_ = operand(args.o, s.q);
    if (backward) {
      dout_ = operand(args.dout, s.dout);
      dq_ = operand(args.dq, s.dq);
      dk_ = operand(args.dk, s.k);
      dv_ = operand(args.dv, s.v);
    }
    const int threads = device.threads();
    row_block_ = block_rows(p_.batch * p_.heads, p_.seq_q, threads);
    key_block_ = block_rows(p_.batch * p_.kv_heads, p_.seq_k, threads);
  }

  /// Makes the products; to be called once, before any launch.
  Result<void> bind(bool backward) {
    const std::int64_t sq = p_.seq_q, sk = p_.seq_k, d = p_.head_dim;
    if (sq == 0 || sk == 0 || p_.batch * p_.heads == 0) return {};
    const auto add = [&](BlockedProduct& product, std::int64_t rows, std::int64_t block, bool more, auto shapes) {
      auto made = BlockedProduct::make(rows, block, more, device_.threads(), shapes);
      if (made) product = std::move(*made);
      return made ? Result<void>{} : fail(made.error().kind, made.error().message);
    };
    Result<void> ok = add(scores_, sq, row_block_, false, [&](std::int64_t rows) {
      return ProductShapes{plain(rows, d, q_.stride()), transposed(d, sk, k_.stride()), plain(rows, sk, sk)};
    });
    if (ok)
      ok = add(output_, sq, row_block_, false, [&](std::int64_t rows) {
        return ProductShapes{plain(rows, sk, sk), plain(sk, d, v_.stride()), plain(rows, d, o_.stride())};
      });
    if (!backward) return ok;
    if (ok)
      ok = add(dweights_, sq, row_block_, false, [&](std::int64_t rows) {
        return ProductShapes{plain(rows, d, dout_.stride()), transposed(d, sk, v_.stride()), plain(rows, sk, sk)};
      });
    if (ok)
      ok = add(dquery_, sq, row_block_, false, [&](std::int64_t rows) {
        return ProductShapes{plain(rows, sk, sk), plain(sk, d, k_.stride()), plain(rows, d, dq_.stride())};
      });
    for (const bool more : {false, true}) {
      if (ok)
        ok = add(dvalue_[more], sk, key_block_, more, [&](std::int64_t rows) {
          return ProductShapes{transposed(rows, sq, sk), plain(sq, d, dout_.stride()), plain(rows, d, dv_.stride())};
        });
      if (ok)
        ok = add(dkey_[more], sk, key_block_, more, [&](std::int64_t rows) {
          return ProductShapes{transposed(rows, sq, sk), plain(sq, d, q_.stride()), plain(rows, d, dk_.stride())};
        });
    }
    return ok;
  }

  std::string variant() const override { return p_.dtype == Dtype::kFp32 ? "onednn" : "onednn+fp32"; }

  Result<void> launch(Pass pass) override {
    failed_.store(false, std::memory_order_relaxed);
    if (pass == Pass::kFwd) {
      widen({&q_, &k_, &v_});
      each_block(p_.heads, p_.seq_q, row_block_, &Blas::forward_block);
    } else {
      widen({&q_, &k_, &v_, &dout_});
      each_block(p_.heads, p_.seq_q, row_block_, &Blas::backward_rows);
      each_block(p_.kv_heads, p_.seq_k, key_block_, &Blas::backward_keys);
    }
    if (failed_.load()) return fail(ErrorKind::kFailed, "oneDNN reported an error while running a matrix product");
    return {};
  }

 private:
  /// Rows [begin, begin + rows) of head h of batch b, and the thread that works on them.
  struct Block {
    std::int64_t b, h, begin, rows;
    int thread;
  };

  /// Copies what is not fp32 rows already. Under a mask, also looks for infinities and NaN: a product over all keys
  /// multiplies them by zero weights, which gives NaN where they must not be seen at all.
  void widen(std::initializer_list<Operand*> operands) {
    for (Operand* operand : operands) {
      const Tensor& t = operand->tensor;
      if (operand->direct && !masked_) {
        std::fill(operand->finite.begin(), operand->finite.end(), static_cast<unsigned char>(1));
        continue;
      }
      device_.pool().parallel_for(t.extent[0] * t.extent[1], [&](std::int64_t head, int) {
        const std::int64_t b = head / t.extent[1];
        const std::int64_t h = head % t.extent[1];
        bool finite = true;
        for (std::int64_t i = 0; i < t.extent[2]; ++i) {
          if (!operand->direct) load_row(t, b, h, i, operand->row(b, h, i));
          if (masked_) finite = all_finite(operand->row(b, h, i), t.extent[3]) && finite;
        }
        operand->finite[static_cast<std::size_t>(head)] = finite ? 1 : 0;
      });
    }
  }

  void each_block(std::int64_t heads, std::int64_t rows, std::int64_t block, void (Blas::*body)(const Block&)) {
    const std::int64_t blocks = (rows + block - 1) / block;
    device_.pool().parallel_for(p_.batch * heads * blocks, [&](std::int64_t item, int thread) {
      const std::int64_t bh = item / blocks;
      const std::int64_t begin = item % blocks * block;
      (this->*body)({bh / heads, bh % heads, begin, std::min(block, rows - begin), thread});
    });
  }

  void note(bool ok) {
    if (!ok) failed_.store(true, std::memory_order_relaxed);
  }

  float* matrix_row(float* matrix, std::int64_t b, std::int64_t h, std::int64_t i) const {
    return matrix + ((b * p_.heads + h) * p_.seq_q + i) * p_.seq_k;
  }

  static bool finite(const Operand& operand, std::int64_t b, std::int64_t h) {
    return operand.finite[static_cast<std::size_t>(b * operand.tensor.extent[1] + h)] != 0;
  }

  void store(const Operand& result, const Block& at) const {
    if (result.direct) return;
    for (std::int64_t i = at.begin; i < at.begin + at.rows; ++i) {
      store_row(result.tensor, at.b, at.h, i, result.row(at.b, at.h, i));
    }
  }

  /// Query rows of `result` = rows of `matrix` times `right` [Sk, D].
  void rows_times(BlockedProduct& product, const Block& at, float* matrix, const Operand& right,
                  const Operand& result) {
    const std::int64_t kv = at.h / group_;
    float* first = matrix_row(matrix, at.b, at.h, at.begin);
    float* target = result.row(at.b, at.h, at.begin);
    if (finite(right, at.b, kv)) {
      note(product.run(at.rows, first, right.row(at.b, kv, 0), target, at.thread));
      return;
    }
    for (std::int64_t i = 0; i < at.rows; ++i) {
      const KeyRange seen = visible_keys(p_, at.begin + i);
      std::fill_n(target + i * result.stride(), p_.head_dim, 0.0f);
      if (seen.count() == 0) continue;
      add_row_times_matrix(target + i * result.stride(), first + i * p_.seq_k + seen.begin,
                           right.row(at.b, kv, seen.begin), seen.count(), right.stride(), p_.head_dim);
    }
  }

  /// Key rows of `result` (+)= transposed `matrix` of head h times `right` [Sq, D].
  void columns_times(BlockedProduct* product, const Block& at, std::int64_t h, float* matrix, const Operand& right,
                     const Operand& result) {
    const bool more = h % group_ != 0;
    float* target = result.row(at.b, at.h, at.begin);
    if (finite(right, at.b, h)) {
      note(product[more].run(at.rows, matrix_row(matrix, at.b, h, 0) + at.begin, right.row(at.b, h, 0), target,
                             at.thread));
      return;
    }
    for (std::int64_t j = 0; j < at.rows && !more; ++j) std::fill_n(target + j * result.stride(), p_.head_dim, 0.0f);
    for (std::int64_t i = 0; i < p_.seq_q; ++i) {
      const KeyRange seen = visible_keys(p_, i);
      const std::int64_t end = std::min(at.begin + at.rows, seen.end);
      for (std::int64_t j = std::max(at.begin, seen.begin); j < end; ++j) {
        add_row_times_matrix(target + (j - at.begin) * result.stride(), matrix_row(matrix, at.b, h, i) + j,
                             right.row(at.b, h, i), 1, right.stride(), p_.head_dim);
      }
    }
  }

  void forward_block(const Block& at) {
    float* first = matrix_row(weights_, at.b, at.h, at.begin);
    if (p_.seq_k > 0)
      note(scores_.run(at.rows, q_.row(at.b, at.h, at.begin), k_.row(at.b, at.h / group_, 0), first, at.thread));
    for (std::int64_t i = 0; i < at.rows; ++i) {
      const KeyRange seen = visible_keys(p_, at.begin + i);
      float* row = first + i * p_.seq_k;
      float lse = -std::numeric_limits<float>::infinity();
      if (seen.count() > 0) lse = softmax_row(row + seen.begin, seen.count(), p_.scale);
      clear_masked(row, seen);
      args_.lse[(at.b * p_.heads + at.h) * p_.seq_q + at.begin + i] = lse;
    }
    finish(at, output_, weights_, v_, o_);
  }

  void backward_rows(const Block& at) {
    if (p_.seq_k > 0) {
      float* first = matrix_row(ds_, at.b, at.h, at.begin);
      const float* weights = matrix_row(weights_, at.b, at.h, at.begin);
      note(dweights_.run(at.rows, dout_.row(at.b, at.h, at.begin), v_.row(at.b, at.h / group_, 0), first, at.thread));
      for (std::int64_t i = 0; i < at.rows; ++i) {
        const KeyRange seen = visible_keys(p_, at.begin + i);
        float* row = first + i * p_.seq_k;
        if (seen.count() > 0) {
          softmax_backward_row(weights + i * p_.seq_k + seen.begin, row + seen.begin, seen.count(), p_.scale);
        }
        clear_masked(row, seen);
      }
    }
    finish(at, dquery_, ds_, k_, dq_);
  }

  void backward_keys(const Block& at) {
    for (std::int64_t h = at.h * group_; h < (at.h + 1) * group_ && p_.seq_q > 0; ++h) {
      columns_times(dvalue_, at, h, weights_, dout_, dv_);
      columns_times(dkey_, at, h, ds_, q_, dk_);
    }
    if (p_.seq_q == 0 || group_ == 0) {
      clear(dv_, at);
      clear(dk_, at);
    }
    store(dv_, at);
    store(dk_, at);
  }

  /// The last product of a block of query rows, and its result to where it belongs.
  void finish(const Block& at, BlockedProduct& product, float* matrix, const Operand& right, const Operand& result) {
    if (p_.seq_k > 0) {
      rows_times(product, at, matrix, right, result);
    } else {
      clear(result, at);
    }
    store(result, at);
  }

  void clear(const Operand& result, const Block& at) const {
    for (std::int64_t i = 0; i < at.rows; ++i) {
      std::fill_n(result.row(at.b, at.h, at.begin + i), p_.head_dim, 0.0f);
    }
  }

  void clear_masked(float* row, const KeyRange& seen) const {
    const std::int64_t begin = seen.count() > 0 ? seen.begin : p_.seq_k;
    std::fill_n(row, begin, 0.0f);
    if (seen.count() > 0) std::fill(row + seen.end, row + p_.seq_k, 0.0f);
  }

  AttentionArgs args_;
  Problem p_;
  CpuDevice& device_;
  std::int64_t group_ = 1;
  bool masked_ = false;
  std::int64_t row_block_ = 1;
  std::int64_t key_block_ = 1;
  float* weights_ = nullptr;  // P, [B, H, Sq, Sk]
  float* ds_ = nullptr;       // dP, then dS, same shape
  Operand q_, k_, v_, o_, dout_, dq_, dk_, dv_;
  BlockedProduct scores_, output_, dweights_, dquery_;
  BlockedProduct dvalue_[2], dkey_[2];  // [0] first query head of a group, [1] adds another
  std::atomic<bool> failed_{false};
};

Footprint footprint(const Problem& p, Pass pass, const Target&) {
  Carver workspace(nullptr);
  carve(p, pass != Pass::kFwd, workspace);
  Carver saved(nullptr);
  saved.take<float>(p.batch * p.heads * p.seq_q * p.seq_k);
  return {workspace.bytes(), saved.bytes()};
}

Result<std::unique_ptr<PreparedKernel>> prepare_blas(const AttentionArgs& args, Device& device) {
  auto kernel = std::make_unique<Blas>(args, static_cast<CpuDevice&>(device));
  if (auto ok = kernel->bind(args.dout.data != nullptr); !ok) return tl::unexpected(ok.error());
  return kernel;
}

}  // namespace

/// Six products of a tuned library, softmax between them; the whole score matrix is computed, masked half included.
/// bf16 and fp16 are converted to fp32 first, which the variant says ("onednn+fp32").
///
/// Shapes  q [B, H, Sq, D]   k, v [B, Hkv, Sk, D]   out [B, H, Sq, D]   lse [B, H, Sq], natural log
/// Needs   D <= 256; any strides (rows that are not contiguous fp32 are copied); fp32, bf16, fp16
/// Memory  saved: P, fp32 [B, H, Sq, Sk]; workspace: fp32 copies of the inputs, and dS as large as P in the backward;
///         oneDNN's own scratch, a few KiB a thread, is host memory made once and not counted
/// Errors  rounding of fp32 sums over Sk and D terms; tolerance() is the project's default. A masked head that holds
///         infinity or NaN has its products done by loops over visible keys, since zero times NaN would leak
/// Source  Vaswani et al. 2017, equation 1, as matrix products; oneDNN matmul
const KernelInfo& cpu_blas() {
  static const KernelInfo info{
      .name = "blas",
      .variant = "onednn",
      .summary = "oneDNN matrix products around a vectorised softmax, scores materialised in fp32",
      .source = "Vaswani et al. 2017, equation 1; oneDNN matmul",
      .device = DeviceKind::kCpu,
      .materialises = true,
      .supports = cpu_declines,
      .footprint = footprint,
      .tolerance = default_tolerance,
      .prepare = prepare_blas,
  };
  return info;
}

}  // namespace attnbench::kernels
