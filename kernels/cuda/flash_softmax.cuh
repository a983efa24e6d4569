// Weights of the softmax as powers of two, for logits of any size. Forward and backward take the same steps, so that
// weights made again are those that were summed.
//
// A row keeps m, its largest score, and base = m c (c = |scale| log2 e) rounded once. Near: up to |base| = 2^22 a score
// s weighs 2^(s c - base), one fused operation; rounding base shifts all weights of a row by one factor, which the
// division by their sum removes. Far: beyond, where that factor could overflow, it weighs 2^((s - m) c). Scores that
// overflowed fp32 saturate, so that equal ones differ by nothing and not by infinity minus infinity.
#pragma once

#include "kernels/cuda/flash_tile.cuh"

namespace attnbench::kernels::flash_cuda {

constexpr float kLargestFloat = 3.402823466e+38f;
constexpr float kFarBase = 4194304.0f;  // 2^22, where the last place of a float is 1/2

/// A rounded lse (base 2) of this size is off by up to 2^-16 (fp32) or 2^-12, and the weights in proportion: the
/// backward then goes back to what the forward saved.
template <int kPlanes>
inline constexpr float kFarLse = kPlanes == 2 ? 256.0f : 4096.0f;

__device__ __forceinline__ bool is_far(float base) { return fabsf(base) > kFarBase; }

/// NaN stays, unlike in fminf and fmaxf.
__device__ __forceinline__ float not_above(float x) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(kLargestFloat));
  return y;
}
__device__ __forceinline__ float not_below(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(-kLargestFloat));
  return y;
}

/// log2 of the factor that takes weights relative to (`from`, `from_base`) to weights relative to (`to`, `to_base`).
__device__ __forceinline__ float rebase(float from, float from_base, float to, float to_base, float c) {
  const bool far_from = is_far(from_base);
  const bool far_to = is_far(to_base);
  if (far_from && far_to) return (from - to) * c;
  if (far_from) return fmaf(from, c, -to_base);
  if (far_to) return fmaf(-to, c, from_base);
  return from_base - to_base;
}

/// lse of a row in natural logarithms: a score that overflowed stands for the largest logit.
__device__ __forceinline__ float natural_lse(float largest, float base, float sum) {
  if (sum == 0.0f) return -INFINITY;
  if (fabsf(largest) >= kLargestFloat) return copysignf(kLargestFloat, largest) + 0.0f * sum;
  return not_below(not_above((base + log2f(sum)) * kLn2));
}

/// log2 of the weight of score `s` in a row whose largest is `largest`; `log2_sum` of the row's weights.
__device__ __forceinline__ float log2_weight(float s, float largest, float log2_sum, float c) {
  const float base = largest * c;
  const float x = is_far(base) ? (not_below(not_above(s)) - largest) * c : fmaf(s, c, -base);
  return x - log2_sum;
}

/// Whether an lse of the tile is too coarse; the same answer in all lanes. +inf marks rows that see nothing.
template <int kPlanes, int kQueries>
__device__ __forceinline__ bool any_far(const float2* stats, int lane) {
  bool far = false;
#pragma unroll
  for (int i = 0; i < kQueries; i += 32) {
    const float lse = fabsf(stats[i + lane].x);
    far = far || (lse > kFarLse<kPlanes> && lse < INFINITY);
  }
  return __any_sync(0xffffffffu, far);
}

}  // namespace attnbench::kernels::flash_cuda
