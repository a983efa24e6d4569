// Backward attention on Hopper, the pieces: what a block owns, and what one consumer does between its products.
//
// A block owns 128 keys, its two consumer warpgroups 64 each (wide heads: see backward_wide.cuh); query tiles stream
// past. Everything is computed transposed (rows are keys), so that P^T and dS^T are the A operands of dV and dK
// straight from registers:
//   S^T = K Q^T   dP^T = V dO^T   P = exp2(c S - lse log2(e))   dS = P (dP - delta)
//   dV += P^T dO   dK += dS^T Q   dQ += dS K   (dS through shared memory, dQ added up in fp32 in global memory)
// Source: Dao 2023, section 3.1.2; Shah et al. 2024, arXiv:2407.08608.
#pragma once

#include "kernels/cuda/flash_softmax.cuh"
#include "kernels/cuda/hopper/rows.hpp"
#include "kernels/cuda/hopper/wgmma.cuh"

namespace attnbench::kernels::hopper {

struct BackwardParams {
  flash_cuda::Shape shape;
  flash_cuda::Order order;  // tiles of keys, batch * kv_heads heads
  int tiles;                // of all heads
  int first_tile;           // of a head: 0 and step 1, or the last and step -1
  int tile_step;
  int* counter;         // zero before a launch: tiles taken beyond the first of every block
  int rows;             // Sq rounded up to whole query tiles
  const float2* saved;  // [B, H, Sq]: largest score (times the sign of the scale), log2 of the sum; or null
  const float* lse;     // [B, H, rows]: lse * log2(e), +inf where no key is visible and beyond Sq
  const float* delta;   // [B, H, rows]: sum over d of dO O, 0 there
  float* dq_sum;        // [B, H, rows / 64 * chunks] slices, each 64 x 64 in the order of an accumulator's registers
  int* turns;           // [B, H, rows / kTileM, 2] zero before a launch, how many tiles have added to a slice; or null
  Rows k, dk, dv;
};

inline constexpr int kSliceFloats = 64 * 64;
inline constexpr int kConsumerThreads = 256;

/// 128-byte wide columns of a tile. The copy engine fills what the head dimension leaves of the last one with zeros.
constexpr int chunks_of(int head_dim) { return (head_dim + 63) / 64; }

template <int kHeadDim_, int kTileM_, bool kOrdered_>
struct BackwardShape {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kTileM = kTileM_;       // queries of a step
  static constexpr int kKeys = 128;            // keys of a block
  static constexpr bool kOrdered = kOrdered_;  // dQ is added up in the order of the keys: bitwise equal over runs
  static constexpr int kStages = 2;            // of Q and of dO
  static constexpr int kKeyStages = 2;         // of K and V, so that the next tile's come early
  static constexpr int kChunks = chunks_of(kHeadDim);
  static constexpr int kKeyBytes = kKeys * kChunks * 128;
  static constexpr int kQueryBytes = kTileM * kChunks * 128;
  static constexpr int kScoreBytes = kKeys * kTileM * 2;
  static constexpr int kStatBytes = kTileM * 4;
  // Shared memory: stages of K, V, Q, dO, two tiles of dS, stages of lse, delta.
  static constexpr int kValueAt = kKeyStages * kKeyBytes;
  static constexpr int kQueryAt = 2 * kKeyStages * kKeyBytes;
  static constexpr int kOutputAt = kQueryAt + kStages * kQueryBytes;
  static constexpr int kScoreAt = kOutputAt + kStages * kQueryBytes;
  static constexpr int kLseAt = kScoreAt + 2 * kScoreBytes;
  static constexpr int kDeltaAt = kLseAt + kStages * kStatBytes;
  static constexpr int kSharedBytes = 1024 + kDeltaAt + kStages * kStatBytes;
  static constexpr int kThreads = 3 * 128;
  // The next step's dP is issued before this one's products have ended, where registers allow it.
  static constexpr bool kOverlaps = kTileM == 64;
  // dQ of a step is two slices of 64 x 64, one per consumer: by rows where a step has 128 queries, else by columns.
  static constexpr bool kSliceByRows = kTileM == 128;
  static constexpr int kStepFloats = 2 * kSliceFloats;
  static constexpr int kGroupFloats = kSliceFloats;  // from the first consumer's part to the second's
  static_assert(kTileM * kChunks * 64 == kStepFloats, "dQ of a step is two slices");
  static_assert(kSharedBytes + 256 <= 232448, "a block has 227 KiB of shared memory");
};

/// What the consumers must know of a tile.
struct BackwardTile {
  int batch, kv_head;
  int key0;
  int query0, query_end;           // of every head of the group
  int unmasked_from, unmasked_to;  // query tiles in this range see every key of the tile
  int steps;                       // 0: there is no further tile
};

struct alignas(8) BackwardBarriers {
  std::uint64_t key_full[2], value_full[2], key_empty[2], value_empty[2];
  std::uint64_t query_full[2], query_empty[2], output_full[2], output_empty[2];
  std::uint64_t tile_full[2], tile_empty[2];
  BackwardTile tile[2];
  int* turn_place[2];  // of each consumer: a turn that is not ended yet, null: none
  int turn_next[2];
};

/// Position in a ring of one or two stages: a count of the uses so far gives the stage and the parity of its phase.
template <int kStages = 2>
__device__ inline int stage_of(int uses) {
  return uses & (kStages - 1);
}
template <int kStages = 2>
__device__ inline std::uint32_t parity_of(int uses) {
  return static_cast<std::uint32_t>(uses >> (kStages - 1)) & 1;
}

/// The steps of a block: query tiles that some of its keys are seen by, once per head of the group.
struct Steps {
  flash_cuda::Range first_key, last_key;  // the queries that see the block's first and last key
  int begin;                              // first query tile
  int tiles;
  int count;  // tiles * group
};

template <int kTileM, int kKeys>
__device__ inline Steps steps_of(const flash_cuda::Shape& shape, int key0) {
  Steps steps;
  steps.first_key = flash_cuda::visible_queries(shape, key0);
  steps.last_key = flash_cuda::visible_queries(shape, min(key0 + kKeys, shape.seq_k) - 1);
  steps.begin = steps.first_key.begin / kTileM;
  const int end = (steps.last_key.end + kTileM - 1) / kTileM;
  steps.tiles = steps.last_key.end > steps.first_key.begin ? end - steps.begin : 0;
  steps.count = steps.tiles * shape.group;
  return steps;
}

/// How many tiles of keys add to the dQ of a query tile before tile `index` does. Under a causal mask the last keys
/// come first: every tile starts at its diagonal, and so the one before it has been there.
template <int kTileM, int kKeys>
__device__ inline int turn_of(const flash_cuda::Shape& shape, int index, int query0) {
  const int offset = shape.seq_k - shape.seq_q;
  if (shape.causal) return min(min(query0 + kTileM, shape.seq_q) - 1 + offset, shape.seq_k - 1) / kKeys - index;
  return shape.window < 0 ? index : index - max(query0 + offset - shape.window, 0) / kKeys;
}

/// Which keys a tile has: sections of heads, within one the first keys first (a causal mask shows them to the most
/// queries), heads innermost. Turns from the last keys to the first need them the other way around: no tile may wait
/// for the turn of one that is taken after it.
__device__ inline flash_cuda::Work work_of(const BackwardParams& p, int index) {
  const int per_section = p.order.section * p.order.tiles;
  const int section = index / per_section;
  const int rest = index - section * per_section;
  const int first = section * p.order.section;
  const int count = min(static_cast<int>(p.order.heads) - first, p.order.section);
  const int tile = rest / count;
  const int head = first + rest - tile * count;
  const int kv_heads = p.shape.heads / p.shape.group;
  return {head, head / kv_heads, head % kv_heads, p.first_tile + p.tile_step * tile};
}

/// x = exp2(c x - lse), this thread's columns 8 j + {0, 1} of the step.
template <int kTileM>
__device__ inline void probabilities_of(float (&s)[kTileM / 2], const float* lse, float c) {
#pragma unroll
  for (int j = 0; j < kTileM / 8; ++j) {
    const float2 two = *reinterpret_cast<const float2*>(lse + 8 * j);
#pragma unroll
    for (int i = 0; i < 4; ++i) s[4 * j + i] = exp2_approx(fmaf(s[4 * j + i], c, -(i % 2 == 0 ? two.x : two.y)));
  }
}

/// An lse (base 2) beyond this is rounded so coarsely that the weights show it: the forward saved more of such a row.
inline constexpr float kFarLse = 4096.f;

/// Whether one of the step's rows is such; the same answer in all lanes. +inf marks rows that see nothing.
template <int kTileM>
__device__ inline bool any_far(const float* lse) {
  bool far = false;
#pragma unroll
  for (int i = 0; i < kTileM; i += 32) {
    const float x = fabsf(lse[i + threadIdx.x % 32]);
    far = far || (x > kFarLse && x < INFINITY);
  }
  return __any_sync(0xffffffffu, far);
}

/// What the forward saved of rows, and how many of them there are.
struct SavedRows {
  const float2* first;
  int count;
};

/// As probabilities_of, by what the forward saved. `rows`: from the thread's first on.
template <int kTileM>
__device__ inline void exact_probabilities_of(float (&s)[kTileM / 2], const SavedRows& rows, float c) {
#pragma unroll
  for (int j = 0; j < kTileM / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float2 row = make_float2(0.f, INFINITY);
      if (8 * j + e < rows.count) row = load_now(rows.first + 8 * j + e);
#pragma unroll
      for (int i = e; i < 4; i += 2) {
        const float x = c < 0.f ? -s[4 * j + i] : s[4 * j + i];
        s[4 * j + i] = exp2_approx(flash_cuda::log2_weight(x, row.x, row.y, fabsf(c)));
      }
    }
  }
}

/// dp = p (dp - delta).
template <int kTileM>
__device__ inline void gradients_of(float (&dp)[kTileM / 2], const float (&p)[kTileM / 2], const float* delta) {
#pragma unroll
  for (int j = 0; j < kTileM / 8; ++j) {
    const float2 two = *reinterpret_cast<const float2*>(delta + 8 * j);
#pragma unroll
    for (int i = 0; i < 4; ++i) dp[4 * j + i] = p[4 * j + i] * (dp[4 * j + i] - (i % 2 == 0 ? two.x : two.y));
  }
}

/// Zeros where a key is not seen, in packed scores. `key` and `query`: the thread's first row and column.
template <int kTileM>
__device__ inline void hide(std::uint32_t (&packed)[kTileM / 4], const flash_cuda::Shape& shape, int key, int query) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = key + 8 * half;
    flash_cuda::Range range = flash_cuda::visible_queries(shape, row);
    if (row >= shape.seq_k) range = {0, 0};
    const int first = range.begin - query;
    const int last = range.end - query;
#pragma unroll
    for (int j = 0; j < kTileM / 8; ++j) {
      const std::uint32_t low = 8 * j >= first && 8 * j < last ? 0x0000ffffu : 0u;
      const std::uint32_t high = 8 * j + 1 >= first && 8 * j + 1 < last ? 0xffff0000u : 0u;
      packed[2 * j + half] &= low | high;
    }
  }
}

template <typename T, int kTileM>
__device__ inline void pack_scores(const float (&x)[kTileM / 2], std::uint32_t (&packed)[kTileM / 4]) {
#pragma unroll
  for (int i = 0; i < kTileM / 4; ++i) packed[i] = pack<T>(x[2 * i], x[2 * i + 1]);
}

/// dS^T of this warp's 16 keys into the block's tile: [keys][64 queries] chunks of swizzled 128-byte rows.
template <int kTileM, int kKeys>
__device__ inline void store_scores(char* tile, const std::uint32_t (&x)[kTileM / 4], int first_key, int lane) {
  asm volatile("" : "+r"(lane));  // addresses are cheaper computed again than kept
  const int row = first_key + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
  for (int k = 0; k < kTileM / 16; ++k) {
    const int column = 2 * (k % 4) + lane / 16;  // in groups of 8 queries
    char* at = tile + k / 4 * (kKeys * 128) + row * 128 + ((column ^ (lane % 8)) * 16);
    store_matrices(at, x[4 * k], x[4 * k + 1], x[4 * k + 2], x[4 * k + 3]);
  }
}

/// x (64 keys by the step's queries) = a b^T over the head dimension; a is the block's K or V, b a stage of Q or dO.
template <typename T, typename Shape>
__device__ inline void key_product(float (&x)[Shape::kTileM / 2], const char* a, const char* b) {
  const std::uint32_t left = operand_low(shared_address(a));
  const std::uint32_t right = operand_low(shared_address(b));
#pragma unroll
  for (int k = 0; k < Shape::kHeadDim / 16; ++k) {
    Product<Shape::kTileM, T>::ss(x, left + ((k / 4) * Shape::kKeys * 128 + (k % 4) * 32) / 16,
                                  right + ((k / 4) * Shape::kTileM * 128 + (k % 4) * 32) / 16, operand_high<128>(),
                                  k > 0);
  }
}

/// sum (64 keys by D) (+)= x b over the step's queries; b is a stage of Q or dO.
template <typename T, typename Shape>
__device__ inline void query_product(float (&sum)[Shape::kHeadDim / 2], const std::uint32_t (&x)[Shape::kTileM / 4],
                                     const char* b, int accumulate) {
  const std::uint32_t right = operand_low(shared_address(b), Shape::kTileM * 128);
#pragma unroll
  for (int k = 0; k < Shape::kTileM / 16; ++k) {
    Product<Shape::kHeadDim, T>::rs(sum, x[4 * k], x[4 * k + 1], x[4 * k + 2], x[4 * k + 3], right + k * 2048 / 16,
                                    operand_high<128>(), k > 0 ? 1 : accumulate);
  }
}

/// dq (one slice, 64 queries by 64) = dS K over the block's keys.
template <typename T, int kKeys>
__device__ inline void slice_product(float (&dq)[32], const char* scores, const char* keys) {
  const std::uint32_t left = operand_low(shared_address(scores));
  const std::uint32_t right = operand_low(shared_address(keys));
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    TransposedProduct<T>::ss(dq, left + k * 2048 / 16, right + k * 2048 / 16, operand_high<128>(), k > 0);
  }
}

/// Adds a slice in the order of its registers, `slice` being this thread's first, so that a warp's stores are 512
/// contiguous bytes.
__device__ inline void add_slice(float* slice, const float (&dq)[32]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    add_four(slice + j * 128 * 4, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
  }
}

/// Rows `row` and `row` + 8 of an accumulator, times scale, in 16-byte pieces from `out` on: the first `columns`.
template <typename T, int kColumns>
__device__ inline void store_rows(T* out, long long stride, int row, int rows, const float (&x)[kColumns / 2],
                                  float scale, int columns = kColumns) {
  const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + 8 * half;
#pragma unroll
    for (int j = 0; j < kColumns / 8; j += 4) {
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i] = pack<T>(x[4 * (j + i) + 2 * half] * scale, x[4 * (j + i) + 2 * half + 1] * scale);
      }
      transpose_quad(a);
      if (r < rows && 8 * (j + quad) < columns) {
        *reinterpret_cast<uint4*>(out + r * stride + 8 * (j + quad)) = make_uint4(a[0], a[1], a[2], a[3]);
      }
    }
  }
}

}  // namespace attnbench::kernels::hopper
