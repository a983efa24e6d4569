// The counts that work.hpp declares.
#include "kernels/work.hpp"

#include <algorithm>

#include "bench/base/saturate.hpp"

namespace attnbench::kernels {
namespace {

double real(std::int64_t count) { return static_cast<double>(count); }

double pass_factor(Pass pass, double backward) {
  switch (pass) {
    case Pass::kFwd:
      return 1.0;
    case Pass::kBwd:
      return backward;
    case Pass::kFwdBwd:
      return 1.0 + backward;
  }
  return 0;
}

__extension__ using Wide = __int128;  // sums over rows of long sequences pass 64 bits

/// Sum over x in [0, n] of min(x, most); 0 for n < 0.
Wide ramp(std::int64_t n, std::int64_t most) {
  if (n < 0) return 0;
  const Wide rising = std::min(n, most);
  return rising * (rising + 1) / 2 + (n - rising) * most;
}

/// Sum over i in [0, count) of clamp(first + i, 0, most).
Wide sum_of_clamped(std::int64_t first, std::int64_t count, std::int64_t most) {
  return ramp(first + count - 1, most) - ramp(first - 1, most);
}

double forward_flops(const Problem& p) {
  return 4.0 * real(p.batch) * real(p.heads) * visible_pairs(p) * real(p.head_dim);
}

}  // namespace

double visible_pairs(const Problem& p) {
  // visible_keys clamps both ends of a row's range to [0, Sk]; the first never passes the second.
  const std::int64_t offset = p.seq_k - p.seq_q;
  const Wide rows = p.seq_q;
  const Wide ends = p.causal ? sum_of_clamped(offset + 1, p.seq_q, p.seq_k) : rows * p.seq_k;
  const Wide begins = p.window_left >= 0 ? sum_of_clamped(offset - bounded_window(p), p.seq_q, p.seq_k) : Wide{0};
  return static_cast<double>(ends - begins);
}

double model_flops(const Problem& problem, Pass pass) { return forward_flops(problem) * pass_factor(pass, 2.5); }

double hardware_flops(const Problem& problem, Pass pass, bool materialises) {
  return forward_flops(problem) * pass_factor(pass, materialises ? 2.0 : 2.5);
}

double model_bytes(const Problem& p, Pass pass, bool materialises) {
  const double element = static_cast<double>(size_of(p.dtype));
  const double row = real(p.batch) * real(p.heads) * real(p.seq_q) * 4.0;
  const double query = real(p.batch) * real(p.heads) * real(p.seq_q) * real(p.head_dim) * element;
  const double key = real(p.batch) * real(p.kv_heads) * real(p.seq_k) * real(p.head_dim) * element;
  const double scores = row * real(p.seq_k);
  const double forward = 2 * query + 2 * key + row + (materialises ? 4 * scores : 0);
  // Reads q, k, v, o, dout, lse; writes dq, dk, dv; delta is written and read.
  const double backward = 4 * query + 4 * key + 3 * row + (materialises ? 7 * scores : 0);
  switch (pass) {
    case Pass::kFwd:
      return forward;
    case Pass::kBwd:
      return backward;
    case Pass::kFwdBwd:
      return forward + backward;
  }
  return 0;
}

std::uint64_t tensor_bytes(const Problem& p, Pass pass) {
  using base::saturating_product;
  const auto element = static_cast<std::int64_t>(size_of(p.dtype));
  const std::uint64_t query = saturating_product({2, p.batch, p.heads, p.seq_q, p.head_dim, element});
  const std::uint64_t key = saturating_product({2, p.batch, p.kv_heads, p.seq_k, p.head_dim, element});
  const std::uint64_t lse = saturating_product({p.batch, p.heads, p.seq_q, 4});
  if (pass == Pass::kFwd) return base::saturating_sum({query, key, lse});
  return base::saturating_sum({query, key, query, key, lse});
}

bool is_countable(const Problem& p, bool materialises) {
  // An extent of 0 counts as 1: other products of the same problem leave it out.
  const auto padded = [](std::int64_t extent, std::int64_t step) {
    return (std::max<std::int64_t>(1, extent) + step - 1) / step * step;
  };
  const std::int64_t batch = padded(p.batch, 1);
  const std::int64_t heads = padded(std::max(p.heads, p.kv_heads), 1);
  if (std::max({batch, heads, p.seq_q, p.seq_k, p.head_dim}) > kMostElements) return false;
  const auto fits = [](std::initializer_list<std::int64_t> extents) {
    return base::saturating_product(extents) <= static_cast<std::uint64_t>(kMostElements);
  };
  return fits({batch, heads, padded(std::max(p.seq_q, p.seq_k), 128), padded(p.head_dim, 64)}) &&
         (!materialises || fits({batch, heads, padded(p.seq_q, 128), padded(p.seq_k, 128)}));
}

}  // namespace attnbench::kernels
