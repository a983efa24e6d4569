// Attention as written in a textbook: scores, softmax, product, each a matrix in memory.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/rows.hpp"
#include "kernels/device/cpu_device.hpp"
#include "kernels/kernel.hpp"

namespace attnbench::kernels {
namespace {

using base::Result;
using RowBuffer = std::array<float, kMaxHeadDim>;

constexpr std::int64_t kRowsPerItem = 16;  // query rows handed to a thread at a time
constexpr std::int64_t kKeysPerItem = 32;  // keys of dk and dv kept by a thread at a time: 64 KiB at D = 256

std::int64_t blocks_of(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

/// fp32 copies and matrices. P is kept for the backward; the rest is scratch that the two passes share.
///
/// Shapes  kt, vt [B, Hkv, D, Sk]   k, v [B, Hkv, Sk, D]   q, dout [B, H, Sq, D]   p, ds [B, H, Sq, Sk]
struct Matrices {
  float *k, *v, *kt, *vt, *q, *dout, *ds;
  float* p;
};

Matrices carve(const Problem& p, bool backward, Carver& workspace, Carver& saved) {
  const std::int64_t queries = p.batch * p.heads * p.seq_q * p.head_dim;
  const std::int64_t keys = p.batch * p.kv_heads * p.seq_k * p.head_dim;
  const std::int64_t scores = p.batch * p.heads * p.seq_q * p.seq_k;
  Matrices m{};
  m.k = workspace.take<float>(keys);
  m.v = workspace.take<float>(keys);
  m.kt = workspace.take<float>(keys);
  if (backward) {
    m.vt = m.kt;  // the forward needs K transposed, the backward V
    m.q = workspace.take<float>(queries);
    m.dout = workspace.take<float>(queries);
    m.ds = workspace.take<float>(scores);
  }
  m.p = saved.take<float>(scores);
  return m;
}

/// Turns scores into weights in place; returns the log of the sum of exponentials.
float softmax(float* row, std::int64_t count, float scale) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t j = 0; j < count; ++j) {
    row[j] = std::clamp(row[j] * scale, -kLargest, kLargest);  // an overflowed score must not give inf - inf
    largest = std::max(largest, row[j]);
  }
  float sum = 0;
  for (std::int64_t j = 0; j < count; ++j) {
    row[j] = std::exp(row[j] - largest);
    sum += row[j];
  }
  const float inverse = 1.0f / sum;
  for (std::int64_t j = 0; j < count; ++j) row[j] *= inverse;
  return largest + std::log(sum);
}

class Naive : public PreparedKernel {
 public:
  Naive(const AttentionArgs& args, CpuDevice& device) : args_(args), problem_(args.problem), device_(device) {
    Carver workspace(args.workspace);
    Carver saved(args.saved);
    m_ = carve(problem_, args.dq.data != nullptr || args.dk.data != nullptr, workspace, saved);
    group_ = problem_.kv_heads == 0 ? 1 : problem_.heads / problem_.kv_heads;
  }

  std::string variant() const override { return "loops"; }

  Result<void> launch(Pass pass) override {
    const std::int64_t row_items = problem_.batch * problem_.heads * blocks_of(problem_.seq_q, kRowsPerItem);
    ThreadPool& pool = device_.pool();
    if (pass == Pass::kFwd) {
      widen_keys(pool, args_.k, m_.k, m_.kt);
      widen_keys(pool, args_.v, m_.v, nullptr);
      pool.parallel_for(row_items, [this](std::int64_t item, int) { rows_of(item, &Naive::forward_row); });
      return {};
    }
    widen_keys(pool, args_.k, m_.k, nullptr);
    widen_keys(pool, args_.v, m_.v, m_.vt);
    pool.parallel_for(row_items, [this](std::int64_t item, int) { rows_of(item, &Naive::backward_row); });
    const std::int64_t key_items = problem_.batch * problem_.kv_heads * blocks_of(problem_.seq_k, kKeysPerItem);
    pool.parallel_for(key_items, [this](std::int64_t item, int) { backward_keys(item); });
    return {};
  }

 private:
  /// One query row of one head, and where its matrix rows are.
  struct RowAt {
    std::int64_t b, h, i, kv, index;
    KeyRange keys;
  };

  void rows_of(std::int64_t item, void (Naive::*row)(const RowAt&)) {
    const std::int64_t blocks = blocks_of(problem_.seq_q, kRowsPerItem);
    const std::int64_t bh = item / blocks;
    const std::int64_t b = bh / problem_.heads;
    const std::int64_t h = bh % problem_.heads;
    // From the last block to the first: under a causal mask that is the longest first.
    const std::int64_t begin = (blocks - 1 - item % blocks) * kRowsPerItem;
    for (std::int64_t i = begin; i < std::min(problem_.seq_q, begin + kRowsPerItem); ++i) {
      const std::int64_t kv = b * problem_.kv_heads + h / group_;
      (this->*row)({b, h, i, kv, bh * problem_.seq_q + i, visible_keys(problem_, i)});
    }
  }

  /// Copies of k or v in fp32: row by row, and transposed too when `transposed` is given.
  void widen_keys(ThreadPool& pool, const Tensor& tensor, float* rows, float* transposed) {
    const std::int64_t dim = problem_.head_dim;
    const std::int64_t length = problem_.seq_k;
    const std::int64_t blocks = blocks_of(length, kKeysPerItem);
    pool.parallel_for(problem_.batch * problem_.kv_heads * blocks, [&](std::int64_t item, int) {
      const std::int64_t head = item / blocks;
      const std::int64_t begin = item % blocks * kKeysPerItem;
      for (std::int64_t j = begin; j < std::min(length, begin + kKeysPerItem); ++j) {
        float* row = rows + (head * length + j) * dim;
        load_row(tensor, head / problem_.kv_heads, head % problem_.kv_heads, j, row);
        if (transposed == nullptr) continue;
        for (std::int64_t d = 0; d < dim; ++d) transposed[(head * dim + d) * length + j] = row[d];
      }
    });
  }

  const float* key_row(const float* matrix, const RowAt& at) const {
    return matrix + (at.kv * problem_.seq_k + at.keys.begin) * problem_.head_dim;
  }
  const float* key_column(const float* matrix, const RowAt& at) const {
    return matrix + at.kv * problem_.head_dim * problem_.seq_k + at.keys.begin;
  }

  void forward_row(const RowAt& at) {
    const std::int64_t dim = problem_.head_dim;
    const std::int64_t count = at.keys.count();
    RowBuffer q;
    RowBuffer o{};
    float lse = -std::numeric_limits<float>::infinity();
    if (count > 0) {
      float* p = m_.p + at.index * problem_.seq_k + at.keys.begin;
      load_row(args_.q, at.b, at.h, at.i, q.data());
      std::fill_n(p, count, 0.0f);
      add_row_times_matrix(p, q.data(), key_column(m_.kt, at), dim, problem_.seq_k, count);
      lse = softmax(p, count, problem_.scale);
      add_row_times_matrix(o.data(), p, key_row(m_.v, at), count, dim, dim);
    }
    store_row(args_.o, at.b, at.h, at.i, o.data());
    args_.lse[at.index] = lse;
  }

  /// dp = dout v^T, delta = sum of p dp, ds = p (dp - delta) scale, dq = ds k.
  void backward_row(const RowAt& at) {
    const std::int64_t dim = problem_.head_dim;
    const std::int64_t count = at.keys.count();
    float* dout = m_.dout + at.index * dim;
    load_row(args_.dout, at.b, at.h, at.i, dout);
    load_row(args_.q, at.b, at.h, at.i, m_.q + at.index * dim);
    RowBuffer dq{};
    if (count > 0) {
      const float* p = m_.p + at.index * problem_.seq_k + at.keys.begin;
      float* ds = m_.ds + at.index * problem_.seq_k + at.keys.begin;
      std::fill_n(ds, count, 0.0f);
      add_row_times_matrix(ds, dout, key_column(m_.vt, at), dim, problem_.seq_k, count);
      float delta = 0;
      for (std::int64_t j = 0; j < count; ++j) delta += p[j] * ds[j];
      for (std::int64_t j = 0; j < count; ++j) ds[j] = p[j] * (ds[j] - delta) * problem_.scale;
      add_row_times_matrix(dq.data(), ds, key_row(m_.k, at), count, dim, dim);
    }
    store_row(args_.dq, at.b, at.h, at.i, dq.data());
  }

  /// dv = p^T dout and dk = ds^T q for a few keys, over all the query heads that read them.
  void backward_keys(std::int64_t item) {
    const std::int64_t blocks = blocks_of(problem_.seq_k, kKeysPerItem);
    const std::int64_t dim = problem_.head_dim;
    const std::int64_t head = item / blocks;
    const std::int64_t b = head / problem_.kv_heads;
    const std::int64_t kv = head % problem_.kv_heads;
    const std::int64_t begin = item % blocks * kKeysPerItem;
    const std::int64_t end = std::min(problem_.seq_k, begin + kKeysPerItem);
    std::array<RowBuffer, kKeysPerItem> dk{};
    std::array<RowBuffer, kKeysPerItem> dv{};
    for (std::int64_t h = kv * group_; h < (kv + 1) * group_; ++h) {
      for (std::int64_t i = 0; i < problem_.seq_q; ++i) {
        const KeyRange seen = visible_keys(problem_, i);
        const std::int64_t index = (b * problem_.heads + h) * problem_.seq_q + i;
        const float* q = m_.q + index * dim;
        const float* dout = m_.dout + index * dim;
        for (std::int64_t j = std::max(begin, seen.begin); j < std::min(end, seen.end); ++j) {
          const float p = m_.p[index * problem_.seq_k + j];
          const float ds = m_.ds[index * problem_.seq_k + j];
          float* dk_row = dk[static_cast<std::size_t>(j - begin)].data();
          float* dv_row = dv[static_cast<std::size_t>(j - begin)].data();
          for (std::int64_t d = 0; d < dim; ++d) dv_row[d] += p * dout[d];
          for (std::int64_t d = 0; d < dim; ++d) dk_row[d] += ds * q[d];
        }
      }
    }
    for (std::int64_t j = begin; j < end; ++j) {
      store_row(args_.dk, b, kv, j, dk[static_cast<std::size_t>(j - begin)].data());
      store_row(args_.dv, b, kv, j, dv[static_cast<std::size_t>(j - begin)].data());
    }
  }

  AttentionArgs args_;
  Problem problem_;
  CpuDevice& device_;
  Matrices m_{};
  std::int64_t group_ = 1;
};

Footprint footprint(const Problem& problem, Pass pass, const Target&) {
  Carver workspace(nullptr);
  Carver saved(nullptr);
  carve(problem, pass != Pass::kFwd, workspace, saved);
  return {workspace.bytes(), saved.bytes()};
}

Result<std::unique_ptr<PreparedKernel>> prepare_naive(const AttentionArgs& args, Device& device) {
  return std::make_unique<Naive>(args, static_cast<CpuDevice&>(device));
}

}  // namespace

/// The baseline of every speed-up: one loop nest per formula, loops over visible keys only.
///
/// Shapes  q [B, H, Sq, D]   k, v [B, Hkv, Sk, D]   out [B, H, Sq, D]   lse [B, H, Sq], natural log
/// Needs   D <= 256; any strides; fp32, bf16, fp16
/// Memory  saved: P, fp32 [B, H, Sq, Sk]; workspace: fp32 copies of the inputs, and dS as large as P in the backward
/// Errors  rounding of fp32 sums over Sk and D terms; tolerance() is the project's default
/// Source  Vaswani et al. 2017, equation 1; backward by the chain rule
const KernelInfo& cpu_naive() {
  static const KernelInfo info{
      .name = "naive",
      .variant = "loops",
      .summary = "plain loops, scores and softmax materialised in fp32",
      .source = "Vaswani et al. 2017, equation 1",
      .device = DeviceKind::kCpu,
      .materialises = true,
      .supports = cpu_declines,
      .footprint = footprint,
      .tolerance = default_tolerance,
      .prepare = prepare_naive,
  };
  return info;
}

}  // namespace attnbench::kernels
