// Attention out of matrix products of a tuned library, with the whole score matrix in memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <initializer_list>
#include <limits>

#include "kernels/cpu/blas_operand.hpp"
#include "kernels/cpu/blas_product.hpp"
#include "kernels/cpu/softmax.hpp"
#include "kernels/device/cpu_device.hpp"
#include "kernels/kernel.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

/// Rows per block so that `heads` matrices of `rows` rows keep every thread busy: whole matrices where they divide
/// evenly or are many, else the fewest blocks that do.
std::int64_t block_rows(std::int64_t heads, std::int64_t rows, int threads) {
  std::int64_t blocks = 1;
  while (heads * blocks % threads != 0 && heads * blocks < 4 * threads && blocks < rows) ++blocks;
  return std::max<std::int64_t>(1, (rows + blocks - 1) / std::max<std::int64_t>(1, blocks));
}

/// Parts of the workspace. The copies of q, k and v become those of o, dk and dv when their values are used up.
struct Scratch {
  float *q, *k, *v, *dout, *dq, *ds;
  Bf16* narrow;  // for each thread, one block of weights; in the backward ds has room for them
  // Under a mask, whether a head holds no infinity or NaN.
  unsigned char *q_finite, *k_finite, *v_finite, *dout_finite;
};

Scratch carve(const Problem& p, bool backward, int threads, Carver& workspace) {
  const std::int64_t queries = p.batch * p.heads * p.seq_q * p.head_dim;
  const std::int64_t keys = p.batch * p.kv_heads * p.seq_k * p.head_dim;
  Scratch s{};
  s.q = workspace.take<float>(queries);
  s.k = workspace.take<float>(keys);
  s.v = workspace.take<float>(keys);
  if (p.dtype == Dtype::kBf16) {
    s.narrow = workspace.take<Bf16>(threads * block_rows(p.batch * p.heads, p.seq_q, threads) * p.seq_k);
  }
  const bool looks = p.causal || p.window_left >= 0;
  if (looks) {
    s.q_finite = workspace.take<unsigned char>(p.batch * p.heads);
    s.k_finite = workspace.take<unsigned char>(p.batch * p.kv_heads);
    s.v_finite = workspace.take<unsigned char>(p.batch * p.kv_heads);
  }
  if (!backward) return s;
  if (looks) s.dout_finite = workspace.take<unsigned char>(p.batch * p.heads);
  s.dout = workspace.take<float>(queries);
  s.dq = workspace.take<float>(queries);
  s.ds = workspace.take<float>(p.batch * p.heads * p.seq_q * p.seq_k);
  return s;
}

class Blas : public PreparedKernel {
 public:
  Blas(const AttentionArgs& args, CpuDevice& device) : args_(args), p_(args.problem), device_(device) {
    const int threads = device.threads();
    backward_ = args.dq.data != nullptr || args.dk.data != nullptr;  // one of them may be empty
    group_ = p_.kv_heads == 0 ? 1 : p_.heads / p_.kv_heads;
    row_block_ = block_rows(p_.batch * p_.heads, p_.seq_q, threads);
    key_block_ = block_rows(p_.batch * p_.kv_heads, p_.seq_k, threads);
    weights_ = static_cast<float*>(args.saved);
    Carver workspace(args.workspace);
    scratch_ = carve(p_, backward_, threads, workspace);
  }

  /// Makes the products; to be called once, before any launch.
  Result<void> bind() {
    const auto input = bind_products(p_.dtype, [this](Dtype type) { return bind(type); });
    return input ? Result<void>{} : fail(input.error().kind, input.error().message);
  }

  std::string variant() const override { return input_ == p_.dtype ? "onednn" : "onednn+fp32"; }

  Result<void> launch(Pass pass) override {
    failed_.store(false, std::memory_order_relaxed);
    if (pass == Pass::kFwd) {
      load({&q_, &k_, &v_});
      each_block(p_.heads, p_.seq_q, row_block_, &Blas::forward_block);
    } else {
      load({&q_, &k_, &v_, &dout_});
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

  void bind_operands(Dtype input) {
    input_ = input;
    q_ = Operand(args_.q, input, scratch_.q, scratch_.q_finite);
    k_ = Operand(args_.k, input, scratch_.k, scratch_.k_finite);
    v_ = Operand(args_.v, input, scratch_.v, scratch_.v_finite);
    o_ = Operand(args_.o, Dtype::kFp32, scratch_.q);
    if (!backward_) return;
    dout_ = Operand(args_.dout, input, scratch_.dout, scratch_.dout_finite);
    dq_ = Operand(args_.dq, Dtype::kFp32, scratch_.dq);
    dk_ = Operand(args_.dk, Dtype::kFp32, scratch_.k);
    dv_ = Operand(args_.dv, Dtype::kFp32, scratch_.v);
  }

  Result<void> bind(Dtype input) {
    bind_operands(input);
    const std::int64_t sq = p_.seq_q, sk = p_.seq_k, d = p_.head_dim;
    const std::int64_t ds = gradients(0, 0).stride;
    if (sq == 0 || sk == 0 || p_.batch * p_.heads == 0) return {};
    Result<void> ok;
    const auto add = [&](BlockedProduct& product, std::int64_t rows, std::int64_t block, bool more, auto shapes) {
      if (!ok) return;
      auto made = BlockedProduct::make(rows, block, more, device_, [&](std::int64_t count) {
        ProductShapes all = shapes(count);
        all.a.dtype = all.b.dtype = input;
        return all;
      });
      if (made) product = std::move(*made);
      if (!made) ok = fail(made.error().kind, made.error().message);
    };
    add(scores_, sq, row_block_, false, [&](std::int64_t rows) {
      return ProductShapes{plain(rows, d, q_.stride()), transposed(d, sk, k_.stride()), plain(rows, sk, sk)};
    });
    add(output_, sq, row_block_, false, [&](std::int64_t rows) {
      return ProductShapes{plain(rows, sk, sk), plain(sk, d, v_.stride()), plain(rows, d, o_.stride())};
    });
    if (!backward_) return ok;
    add(dweights_, sq, row_block_, false, [&](std::int64_t rows) {
      return ProductShapes{plain(rows, d, dout_.stride()), transposed(d, sk, v_.stride()), plain(rows, sk, sk)};
    });
    add(dquery_, sq, row_block_, false, [&](std::int64_t rows) {
      return ProductShapes{plain(rows, sk, ds), plain(sk, d, k_.stride()), plain(rows, d, dq_.stride())};
    });
    for (const bool more : {false, true}) {
      add(dvalue_[more], sk, key_block_, more, [&](std::int64_t rows) {
        return ProductShapes{transposed(rows, sq, ds), plain(sq, d, dout_.stride()), plain(rows, d, dv_.stride())};
      });
      add(dkey_[more], sk, key_block_, more, [&](std::int64_t rows) {
        return ProductShapes{transposed(rows, sq, ds), plain(sq, d, q_.stride()), plain(rows, d, dk_.stride())};
      });
    }
    return ok;
  }

  /// Copies what products cannot read. Under a mask, also looks for infinities and NaN: a product over all keys
  /// multiplies them by zero weights, which gives NaN where they must not be seen at all.
  void load(std::initializer_list<Operand*> operands) {
    for (Operand* operand : operands) {
      if (!operand->must_load()) continue;
      const std::int64_t heads = operand->tensor().extent[1];
      device_.pool().parallel_for(operand->tensor().extent[0] * heads,
                                  [&](std::int64_t head, int) { operand->load_head(head / heads, head % heads); });
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

  /// dS of a head as products read it. As bf16 it takes the first half of the room of each fp32 row.
  MatrixRows gradients(std::int64_t b, std::int64_t h) const {
    const bool narrow = input_ != Dtype::kFp32;
    return {reinterpret_cast<unsigned char*>(matrix_row(scratch_.ds, b, h, 0)), narrow ? 2 * p_.seq_k : p_.seq_k,
            input_};
  }

  /// P of a head as the backward's products read it. As bf16 it takes the second half of the rows of dS.
  MatrixRows weights(std::int64_t b, std::int64_t h) const {
    if (input_ != Dtype::kFp32) return gradients(b, h).from(0, p_.seq_k);
    return {reinterpret_cast<unsigned char*>(matrix_row(weights_, b, h, 0)), p_.seq_k, input_};
  }

  /// Query rows of `result` = rows of `matrix`, which begins with the block's first, times `right` [Sk, D].
  void rows_times(BlockedProduct& product, const Block& at, const MatrixRows& matrix, const Operand& right,
                  const Operand& result) {
    const std::int64_t kv = at.h / group_;
    float* const target = result.floats(at.b, at.h, at.begin);
    if (right.finite(at.b, kv)) {
      note(product.run(at.rows, matrix.data, right.row(at.b, kv, 0), target, at.thread));
      return;
    }
    for (std::int64_t i = 0; i < at.rows; ++i) {
      const KeyRange seen = visible_keys(p_, at.begin + i);
      std::fill_n(target + i * result.stride(), p_.head_dim, 0.0f);
      for (std::int64_t j = seen.begin; j < seen.end; ++j) {
        add_row(target + i * result.stride(), matrix.at(i, j), right.tensor(), at.b, kv, j);
      }
    }
  }

  /// Key rows of `result` (+)= transposed `matrix` of head h times `right` [Sq, D].
  void columns_times(BlockedProduct* product, const Block& at, std::int64_t h, const MatrixRows& matrix,
                     const Operand& right, const Operand& result) {
    const bool more = h % group_ != 0;
    float* const target = result.floats(at.b, at.h, at.begin);
    if (right.finite(at.b, h)) {
      note(product[more].run(at.rows, matrix.from(0, at.begin).data, right.row(at.b, h, 0), target, at.thread));
      return;
    }
    for (std::int64_t j = 0; j < at.rows && !more; ++j) std::fill_n(target + j * result.stride(), p_.head_dim, 0.0f);
    for (std::int64_t i = 0; i < p_.seq_q; ++i) {
      const KeyRange seen = visible_keys(p_, i);
      const std::int64_t end = std::min(at.begin + at.rows, seen.end);
      for (std::int64_t j = std::max(at.begin, seen.begin); j < end; ++j) {
        add_row(target + (j - at.begin) * result.stride(), matrix.at(i, j), right.tensor(), at.b, h, i);
      }
    }
  }

  void add_row(float* target, float factor, const Tensor& right, std::int64_t b, std::int64_t h, std::int64_t i) const {
    std::array<float, kMaxHeadDim> row;
    load_row(right, b, h, i, row.data());
    add_row_times_matrix(target, &factor, row.data(), 1, p_.head_dim, p_.head_dim);
  }

  void forward_block(const Block& at) {
    float* first = matrix_row(weights_, at.b, at.h, at.begin);
    Bf16* narrow = nullptr;
    if (input_ != Dtype::kFp32) narrow = scratch_.narrow + at.thread * row_block_ * p_.seq_k;
    if (p_.seq_k > 0)
      note(scores_.run(at.rows, q_.row(at.b, at.h, at.begin), k_.row(at.b, at.h / group_, 0), first, at.thread));
    for (std::int64_t i = 0; i < at.rows; ++i) {
      const KeyRange seen = visible_keys(p_, at.begin + i);
      float* row = first + i * p_.seq_k;
      float lse = -std::numeric_limits<float>::infinity();
      if (seen.count() > 0) lse = softmax_row(row + seen.begin, seen.count(), p_.scale);
      clear_masked(row, seen);
      if (narrow != nullptr) narrow_row(row, p_.seq_k, narrow + i * p_.seq_k);
      args_.lse[(at.b * p_.heads + at.h) * p_.seq_q + at.begin + i] = lse;
    }
    void* const data = narrow == nullptr ? static_cast<void*>(first) : narrow;
    finish(at, output_, {static_cast<unsigned char*>(data), p_.seq_k, input_}, v_, o_);
  }

  void backward_rows(const Block& at) {
    const MatrixRows gradient = gradients(at.b, at.h).from(at.begin, 0);
    if (p_.seq_k > 0) {
      float* first = matrix_row(scratch_.ds, at.b, at.h, at.begin);
      const float* weights = matrix_row(weights_, at.b, at.h, at.begin);
      note(dweights_.run(at.rows, dout_.row(at.b, at.h, at.begin), v_.row(at.b, at.h / group_, 0), first, at.thread));
      for (std::int64_t i = 0; i < at.rows; ++i) {
        const KeyRange seen = visible_keys(p_, at.begin + i);
        float* row = first + i * p_.seq_k;
        if (seen.count() > 0) {
          softmax_backward_row(weights + i * p_.seq_k + seen.begin, row + seen.begin, seen.count(), p_.scale);
        }
        clear_masked(row, seen);
        if (input_ == Dtype::kFp32) continue;
        Bf16* const narrow = reinterpret_cast<Bf16*>(gradient.from(i, 0).data);
        narrow_row(row, p_.seq_k, narrow);
        narrow_row(weights + i * p_.seq_k, p_.seq_k, narrow + p_.seq_k);
      }
    }
    finish(at, dquery_, gradient, k_, dq_);
  }

  void backward_keys(const Block& at) {
    for (std::int64_t h = at.h * group_; h < (at.h + 1) * group_ && p_.seq_q > 0; ++h) {
      columns_times(dvalue_, at, h, weights(at.b, h), dout_, dv_);
      columns_times(dkey_, at, h, gradients(at.b, h), q_, dk_);
    }
    if (p_.seq_q == 0 || group_ == 0) {
      clear(dv_, at);
      clear(dk_, at);
    }
    dv_.store(at.b, at.h, at.begin, at.rows);
    dk_.store(at.b, at.h, at.begin, at.rows);
  }

  /// The last product of a block of query rows, and its result to where it belongs.
  void finish(const Block& at, BlockedProduct& product, const MatrixRows& matrix, const Operand& right,
              const Operand& result) {
    if (p_.seq_k > 0) {
      rows_times(product, at, matrix, right, result);
    } else {
      clear(result, at);
    }
    result.store(at.b, at.h, at.begin, at.rows);
  }

  void clear(const Operand& result, const Block& at) const {
    for (std::int64_t i = 0; i < at.rows; ++i) {
      std::fill_n(result.floats(at.b, at.h, at.begin + i), p_.head_dim, 0.0f);
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
  bool backward_ = false;
  std::int64_t group_ = 1;
  std::int64_t row_block_ = 1;
  std::int64_t key_block_ = 1;
  Dtype input_ = Dtype::kFp32;  // what products read
  float* weights_ = nullptr;    // P, [B, H, Sq, Sk]
  Scratch scratch_{};           // ds: dP, then dS, as large as P
  Operand q_, k_, v_, o_, dout_, dq_, dk_, dv_;
  BlockedProduct scores_, output_, dweights_, dquery_;
  BlockedProduct dvalue_[2], dkey_[2];  // [0] first query head of a group, [1] adds another
  std::atomic<bool> failed_{false};
};

Footprint footprint(const Problem& p, Pass pass, const Target& target) {
  Carver workspace(nullptr);
  carve(p, pass != Pass::kFwd, target.threads, workspace);
  Carver saved(nullptr);
  saved.take<float>(p.batch * p.heads * p.seq_q * p.seq_k);
  return {workspace.bytes(), saved.bytes()};
}

Result<std::unique_ptr<PreparedKernel>> prepare_blas(const AttentionArgs& args, Device& device) {
  auto kernel = std::make_unique<Blas>(args, static_cast<CpuDevice&>(device));
  if (auto ok = kernel->bind(); !ok) return tl::unexpected(ok.error());
  return kernel;
}

}  // namespace

/// Six products of a tuned library, softmax between them; the whole score matrix is computed, masked half included.
///
/// fp16 is converted to fp32 first, and bf16 where oneDNN has no product of it for this machine, which the variant then
/// says ("onednn+fp32"). Where it has one ("onednn"), all six products read bf16 and sum in fp32; scores, weights,
/// delta and dS are computed in fp32 and kept so, and products read a copy of weights and dS rounded to bf16, as cuBLAS
/// does.
///
/// Shapes  q [B, H, Sq, D]   k, v [B, Hkv, Sk, D]   out [B, H, Sq, D]   lse [B, H, Sq], natural log
/// Needs   D <= 256; any strides (rows that are not contiguous fp32 are copied); fp32, bf16, fp16
/// Memory  saved: P, fp32 [B, H, Sq, Sk]; workspace: fp32 copies of the inputs, and dS as large as P in the backward;
///         for bf16, a block of weights a thread (whole rows; all of a head's where heads keep the threads busy);
///         beside the footprint, which knows no primitive, oneDNN's own scratch: some KiB a thread, made with the
///         products
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
