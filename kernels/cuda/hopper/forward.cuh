// Forward attention on Hopper: one producer warp feeds K and V through the copy engine, two or three consumer
// warpgroups of 64 query rows each keep a row's whole softmax in registers.
//
// Per key block: S = Q K^T (both in shared memory), P = exp2(c S - c m) in registers, O += P V (P from registers).
// S of the next block is issued before P V of this one, so that one warpgroup's softmax can run beside
// the products of the others. Blocks run from the last key to the first: only the last can be shorter than a tile.
#pragma once

#include <cfloat>
#include <cmath>

#include "kernels/cuda/hopper/wgmma.cuh"

namespace attnbench::kernels::hopper {

struct ForwardParams {
  int batch, heads, kv_heads, seq_q, seq_k;
  float scale;
  float scale_log2;                                    // scale * log2(e)
  float* lse;                                          // [B, H, Sq]
  void* out;                                           // 16-bit elements, innermost stride 1
  long long out_stride_b, out_stride_h, out_stride_s;  // elements
  int* counters;                                       // [2] zero before and after a launch: next tile, finished blocks
  int tiles_m;                                         // ceil(Sq / kTileM)
  int tiles;                                           // tiles_m * batch * heads
  int section;  // heads (of all batches) that are worked on together, so that their K and V stay in L2
};

template <int kHeadDim, int kConsumers, int kTileN, int kStages, int kQueryStages>
struct ForwardShape {
  static constexpr int kTileM = 64 * kConsumers;
  static constexpr int kChunks = kHeadDim / 64;  // 128-byte wide columns of a tile
  static constexpr int kQueryBytes = kTileM * kHeadDim * 2;
  static constexpr int kKeyBytes = kTileN * kHeadDim * 2;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kSharedBytes = 1024 + kQueryStages * kQueryBytes + 2 * kStages * kKeyBytes;
};

/// Which tile comes t-th: sections of heads, within one the last rows first, heads innermost.
struct TileIndex {
  int m, head, batch;
};

__device__ inline TileIndex tile_at(const ForwardParams& p, int t) {
  const int all_heads = p.batch * p.heads;
  const int per_section = p.section * p.tiles_m;
  const int section = t / per_section;
  const int first = section * p.section;
  const int width = min(p.section, all_heads - first);
  const int within = t - section * per_section;
  const int m = p.tiles_m - 1 - within / width;
  const int bh = first + within % width;
  return {m, bh % p.heads, bh / p.heads};
}

/// Position in a ring of stages: index and parity of the phase.
template <int kStages>
struct Ring {
  int index = 0;
  std::uint32_t phase = 0;
  __device__ void advance() {
    if (++index == kStages) {
      index = 0;
      phase ^= 1;
    }
  }
};

template <int kStages, int kQueryStages>
struct alignas(8) ForwardBarriers {
  std::uint64_t query_full[kQueryStages], query_empty[kQueryStages];
  std::uint64_t key_full[kStages], key_empty[kStages], value_full[kStages], value_empty[kStages];
  std::uint64_t tile_full[2], tile_empty[2];
  int tile[2];
};

/// One row pair (r, r + 8) of the running softmax; sums stay per thread until the end.
struct RowState {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.f, 0.f};
};

/// Takes keys at and beyond seq_k out of S, whose first column of this thread is key `column`. Their rows of V arrived
/// as zeros.
template <int kColumns>
__device__ inline void mask_tail(float (&s)[kColumns / 2], int seq_k, int column) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + 8 * j + i % 2 >= seq_k) s[4 * j + i] = -INFINITY;
    }
  }
}

/// Replaces S by exp2(c S - c m), updates m and the per-thread sums, returns the factors for the old O in alpha.
/// Where c m is so large that one rounding of it spoils the exponent, the maximum is subtracted first; scores beyond
/// fp32 saturate there.
template <int kColumns>
__device__ inline void softmax_step(float (&s)[kColumns / 2], RowState& state, float (&alpha)[2], float c) {
  float next[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = s[2 * half];
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) top = fmaxf(top, fmaxf(s[4 * j + 2 * half], s[4 * j + 2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    next[half] = fmaxf(state.max[half], top);
  }
  constexpr float kExactBase = 4194304.f;  // 2^22: beyond, c m is rounded to halves or worse
  const bool huge = fabsf(next[0] * c) > kExactBase || fabsf(next[1] * c) > kExactBase;
  float factor = c;
  float base[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    base[half] = next[half] == -INFINITY ? 0.f : next[half] * c;
    alpha[half] = exp2_approx(state.max[half] * c - base[half]);
  }
  if (__any_sync(0xffffffffu, huge)) {
    factor = 1.f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      next[half] = fminf(next[half], FLT_MAX);
      const float origin = next[half] == -INFINITY ? 0.f : next[half];
      alpha[half] = exp2_approx((state.max[half] - origin) * c);
      base[half] = 0.f;
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& value = s[4 * j + 2 * half + e];
          value = (fminf(value, FLT_MAX) - origin) * c;
        }
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    state.max[half] = next[half];
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
    state.sum[half] = state.sum[half] * alpha[half] + sum;
  }
}

template <typename T, int kColumns>
__device__ inline void pack_probabilities(const float (&s)[kColumns / 2], std::uint32_t (&p)[kColumns / 4]) {
#pragma unroll
  for (int i = 0; i < kColumns / 4; ++i) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
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

/// S = Q K^T: Q rows of this warpgroup [64, D], K block [N, D], both as 64-column chunks of 128-byte rows.
template <typename T, int kHeadDim, int kTileM, int kTileN>
__device__ inline void score_product(float (&s)[kTileN / 2], const char* query, const char* key) {
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    const std::uint64_t a = operand(query + (k / 4) * kTileM * 128 + (k % 4) * 32, 16, 1024);
    const std::uint64_t b = operand(key + (k / 4) * kTileN * 128 + (k % 4) * 32, 16, 1024);
    Product<kTileN, T>::ss(s, a, b, k > 0);
  }
}

template <typename T, int kHeadDim, int kTileN>
__device__ inline void value_product(float (&o)[kHeadDim / 2], const std::uint32_t (&p)[kTileN / 4], const char* value,
                                     int accumulate) {
#pragma unroll
  for (int k = 0; k < kTileN / 16; ++k) {
    const std::uint64_t b = operand(value + k * 2048, kTileN * 128, 1024);
    Product<kHeadDim, T>::rs(o, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], b, k > 0 ? 1 : accumulate);
  }
}

}  // namespace attnbench::kernels::hopper
