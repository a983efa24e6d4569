// The attention problem: everything that defines the mathematics, nothing about how it is run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "kernels/dtype.hpp"

namespace attnbench::kernels {

/// What is computed. fwd: o and lse. bwd: dq, dk, dv from the saved o and lse. fwd_bwd: both, one after the other.
enum class Pass : std::uint8_t { kFwd, kBwd, kFwdBwd };

constexpr std::string_view to_string(Pass pass) {
  switch (pass) {
    case Pass::kFwd:
      return "fwd";
    case Pass::kBwd:
      return "bwd";
    case Pass::kFwdBwd:
      return "fwd_bwd";
  }
  return "?";
}

/// softmax(scale * q k^T + mask) v over [B, H, S, D] tensors.
///
/// Shape letters, here and everywhere: B batch, H query heads, Hkv key/value heads, Sq, Sk lengths, D head dimension.
/// Query head h reads key/value head h / (H / Hkv).
/// Causal is aligned bottom-right: key j is visible to query i when j <= i + Sk - Sq.
/// window_left w >= 0 adds j >= i + Sk - Sq - w (w + 1 keys at most when causal); -1 means no window.
/// A query with no visible key has o = 0, lse = -inf and zero gradients.
struct Problem {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t seq_q = 1;
  std::int64_t seq_k = 1;
  std::int64_t head_dim = 64;
  Dtype dtype = Dtype::kFp32;
  bool causal = false;
  std::int64_t window_left = -1;
  float scale = 0.125f;

  bool operator==(const Problem&) const = default;
};

/// The customary 1 / sqrt(D).
inline float default_scale(std::int64_t head_dim) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

/// Half-open range of keys; empty when begin >= end.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  constexpr std::int64_t count() const { return std::max<std::int64_t>(0, end - begin); }
};

/// window_left, no longer than what hides nothing already: arithmetic with it cannot overflow, whatever was asked for.
constexpr std::int64_t bounded_window(const Problem& problem) {
  return std::min(problem.window_left, problem.seq_q + problem.seq_k);
}

/// Keys that query row i sees: the only place that knows the mask (constexpr, so that device code can call it too).
constexpr KeyRange visible_keys(const Problem& problem, std::int64_t query) {
  const std::int64_t diagonal = query + problem.seq_k - problem.seq_q;
  KeyRange range{0, problem.seq_k};
  if (problem.causal) range.end = std::clamp<std::int64_t>(diagonal + 1, 0, problem.seq_k);
  if (problem.window_left >= 0)
    range.begin = std::clamp<std::int64_t>(diagonal - bounded_window(problem), 0, problem.seq_k);
  return range;
}

/// Query rows that see key j: [first, last), the transpose of visible_keys.
constexpr KeyRange visible_queries(const Problem& problem, std::int64_t key) {
  const std::int64_t offset = problem.seq_k - problem.seq_q;
  KeyRange range{0, problem.seq_q};
  if (problem.causal) range.begin = std::clamp<std::int64_t>(key - offset, 0, problem.seq_q);
  if (problem.window_left >= 0) {
    range.end = std::clamp<std::int64_t>(key - offset + bounded_window(problem) + 1, 0, problem.seq_q);
  }
  return range;
}

}  // namespace attnbench::kernels
