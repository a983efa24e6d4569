// What a consumer warpgroup does with one key block: mask, running softmax, and the two products.
//
// Source: Milakov & Gimelshein 2018, section 3 (online softmax).
#pragma once

#include <cfloat>
#include <cmath>

#include "kernels/cuda/flash_softmax.cuh"
#include "kernels/cuda/hopper/forward.cuh"

namespace attnbench::kernels::hopper {

/// One row pair (r, r + 8) of the running softmax; sums stay per thread until the end.
struct RowState {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.f, 0.f};
};

/// Of a thread's columns of 16 blocks of eight, 8 j + {0, 1} for j = 0 .. 15, the first bits: those below `end`.
__device__ inline std::uint32_t columns_below(int end) {
  const int count = min(max(end / 8 * 2 + min(end % 8, 2), 0), 32);
  return count == 32 ? ~0u : (1u << count) - 1;
}

/// Takes out of S what rows `row` and `row` + 8 do not see, whatever is there. One bit a score: testing bits costs less
/// than comparing places twice. Keys at and beyond seq_k too; their rows of V arrived as zeros.
template <int kColumns>
__device__ inline void mask_hidden(float (&s)[kColumns / 2], const ForwardParams& p, int row, int column) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Range seen = visible_keys(p, row + 8 * half, {0, p.seq_k});
#pragma unroll
    for (int word = 0; word < kColumns; word += 128) {
      const int place = column + word;
      const std::uint32_t bits = columns_below(seen.end - place) & ~columns_below(seen.begin - place);
#pragma unroll
      for (int i = 0; i < 32 && word / 4 + i < kColumns / 4; ++i) {
        if ((bits >> i & 1) == 0) s[word / 2 + i / 2 * 4 + 2 * half + i % 2] = -INFINITY;
      }
    }
  }
}

/// The largest score of a row; NaN if one is.
template <int kColumns>
__device__ inline float row_max(const float (&s)[kColumns / 2], int half) {
  float top = max_or_nan(s[2 * half], s[2 * half + 1]);
#pragma unroll
  for (int j = 1; j < kColumns / 8; ++j) {
    top = max_or_nan(top, max_or_nan(s[4 * j + 2 * half], s[4 * j + 2 * half + 1]));
  }
  top = max_or_nan(top, __shfl_xor_sync(0xffffffffu, top, 1));
  return max_or_nan(top, __shfl_xor_sync(0xffffffffu, top, 2));
}

/// +infinity becomes the largest float; NaN stays.
__device__ inline float saturate(float x) { return x > FLT_MAX ? FLT_MAX : x; }

/// How far, as a power of two, P may pass one before the maximum that it is taken against is brought up to date.
constexpr float kSlack = 8.f;

/// Replaces S by P = exp2(c S - c m), and adds to the per-thread sums. m is the largest score at some earlier time: it
/// follows the true one only where that has grown by more than kSlack, since any m gives the same O and lse in the end,
/// and then true is returned, and `alpha` holds the factors for the old O. Where c m is so large that one rounding of
/// it spoils the exponent, m is subtracted first; scores beyond fp32 saturate there.
template <int kColumns>
__device__ inline bool softmax_step(float (&s)[kColumns / 2], RowState& state, float (&alpha)[2], float c) {
  constexpr float kExactBase = 4194304.f;  // 2^22: beyond, c m is rounded to halves or worse
  float top[2];
  bool grew[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    top[half] = row_max<kColumns>(s, half);
    grew[half] = !((top[half] - state.max[half]) * c <= kSlack);  // NaN too
  }
  const bool update = __any_sync(0xffffffffu, grew[0] || grew[1]);
  if (update) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Row by row, so that no row's result depends on what others hold.
      const float next = grew[half] ? saturate(max_or_nan(state.max[half], top[half])) : state.max[half];
      alpha[half] = next == state.max[half] ? 1.f : exp2_approx((state.max[half] - next) * c);
      state.max[half] = next;
      state.sum[half] *= alpha[half];
    }
  }
  const float origin[2] = {state.max[0] == -INFINITY ? 0.f : state.max[0],
                           state.max[1] == -INFINITY ? 0.f : state.max[1]};
  float factor = c, base[2] = {origin[0] * c, origin[1] * c};
  if (__any_sync(0xffffffffu, fabsf(base[0]) > kExactBase || fabsf(base[1]) > kExactBase)) {
    factor = 1.f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Row by row here too: the backward must find the same weights.
      const bool exact = fabsf(base[half]) > kExactBase;
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& value = s[4 * j + 2 * half + e];
          value = exact ? (saturate(value) - origin[half]) * c : fmaf(value, c, -base[half]);
        }
      }
      base[half] = 0.f;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0.f;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& value = s[4 * j + 2 * half + e];
        value = exp2_approx(fmaf(value, factor, -base[half]));
        sum += value;
      }
    }
    state.sum[half] += sum;
  }
  return update;
}

template <typename T, int kColumns>
__device__ inline void pack_probabilities(const float (&s)[kColumns / 2], std::uint32_t (&p)[kColumns / 4]) {
#pragma unroll
  for (int i = 0; i < kColumns / 4; ++i) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
}

template <int kCount>
__device__ inline void clear(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) registers[i] = 0.f;
}

template <int kHeadDim>
__device__ inline void rescale(float (&o)[kHeadDim / 2], const float (&alpha)[2]) {
#pragma unroll
  for (int j = 0; j < kHeadDim / 8; ++j) {
    o[4 * j] *= alpha[0];
    o[4 * j + 1] *= alpha[0];
    o[4 * j + 2] *= alpha[1];
    o[4 * j + 3] *= alpha[1];
  }
}

/// S = Q K^T: Q rows of this warpgroup [64, D], K block [N, D], both as chunks of columns.
template <typename T, typename Shape>
__device__ inline void score_product(float (&s)[Shape::kTileN / 2], std::uint32_t query, std::uint32_t key) {
  constexpr int kSteps = Shape::kColumns / 16;  // of a chunk, 32 bytes each
  const std::uint32_t a = operand_low(query), b = operand_low(key);
#pragma unroll
  for (int k = 0; k < Shape::kHeadDim / 16; ++k) {
    const int chunk = k / kSteps, step = k % kSteps * 32;
    Product<Shape::kTileN, T>::ss(s, a + (chunk * Shape::kTileM * Shape::kRowBytes + step) / 16,
                                  b + (chunk * Shape::kTileN * Shape::kRowBytes + step) / 16,
                                  operand_high<Shape::kRowBytes>(), k > 0);
  }
}

/// O += P V.
template <typename T, typename Shape>
__device__ inline void value_product(float (&o)[Shape::kHeadDim / 2], const std::uint32_t (&p)[Shape::kTileN / 4],
                                     std::uint32_t value) {
  const std::uint32_t b = operand_low(value, Shape::kTileN * Shape::kRowBytes);
#pragma unroll
  for (int k = 0; k < Shape::kTileN / 16; ++k) {
    Product<Shape::kHeadDim, T>::rs(o, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], b + k * Shape::kRowBytes,
                                    operand_high<Shape::kRowBytes>(), 1);
  }
}

}  // namespace attnbench::kernels::hopper
