// Forward attention on Hopper: one producer warp feeds K and V through the copy engine, one to three consumer
// warpgroups of 64 query rows each keep a row's whole softmax in registers.
//
// Per key block: S = Q K^T (both in shared memory), P = exp2(c S - c m) in registers, O += P V (P from registers).
// S of the next block is issued before P V of this one, so that one warpgroup's softmax can run beside
// the products of the others. Blocks run from the last key to the first: the masked ones of a causal problem come
// first.
//
// Here: the problem as the device sees it, the order of tiles, who sees what. Softmax and products: forward_step.cuh.
#pragma once

#include "kernels/cuda/hopper/rows.hpp"
#include "kernels/cuda/hopper/wgmma.cuh"

namespace attnbench::kernels::hopper {

/// Division by a number that the host knows: n / d = n * ceil(2^(31 + s) / d) >> (31 + s) with 2^s >= d, exact for
/// 0 <= n < 2^31, since the rounded factor is too large by less than 2^s / 2^(31 + s).
struct Divisor {
  int divisor = 1;
  std::uint32_t factor = 0x80000000u;
  int shift = 31;

  Divisor() = default;
  __host__ explicit Divisor(int d) : divisor(d) {
    while (1ll << (shift - 31) < d) ++shift;
    factor = static_cast<std::uint32_t>(((1ull << shift) + static_cast<unsigned>(d) - 1) / static_cast<unsigned>(d));
  }
  __device__ int quotient(int n) const {
    return static_cast<int>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(n)) * factor >> shift);
  }
};

/// Beyond every key there is: as far as a query looks in a direction without bound.
constexpr int kFar = 1 << 29;

struct ForwardParams {
  int seq_q, seq_k;
  Divisor heads, group;  // query heads, and how many of them share a head of K and V
  int behind, ahead;     // keys seen before and after a query's own place, row + Sk - Sq: window and 0, or kFar
  float scale_log2;      // scale * log2(e)
  float* lse;            // [B, H, Sq]
  float2* saved;         // [B, H, Sq]: largest score, log2 of the sum; null: unwanted
  void* out;             // 16-bit elements, innermost stride 1
  long long out_stride_b, out_stride_h, out_stride_s;  // elements
  Rows q, k, v;                                        // for rows that are computed again (forward_finish.cuh)
  int* counters;                                       // [2] zero before and after a launch: next tile, finished blocks
  int tiles_m;                                         // ceil(Sq / kTileM)
  int tiles;                                           // tiles_m * batch * heads
  // Heads (of all batches) are worked on in sections, so that their K and V stay in L2; those from `last_heads`, a
  // multiple of a section, are one section: its short tiles even out who finishes when.
  int last_heads;
  Divisor section, section_tiles, last_section;
};

template <int kHeadDim_, int kConsumers_, int kTileN_, int kStages_, int kQueryStages_, bool kTurns_, bool kStaged_>
struct ForwardShape {
  // Turns: consumers issue their products one after the other. Staged: O leaves through the stage of the tile's Q.
  static constexpr bool kTurns = kTurns_ && kConsumers_ > 1, kStaged = kStaged_;
  static constexpr int kHeadDim = kHeadDim_, kConsumers = kConsumers_, kTileN = kTileN_, kStages = kStages_,
                       kQueryStages = kQueryStages_;
  static constexpr int kTileM = 64 * kConsumers;
  static constexpr int kColumns = kHeadDim < 64 ? kHeadDim : 64;  // of a chunk, which is swizzled as a whole
  static constexpr int kRowBytes = 2 * kColumns;
  static constexpr int kChunks = (kHeadDim + kColumns - 1) / kColumns;
  static constexpr int kQueryBytes = kTileM * kChunks * kRowBytes;
  static constexpr int kKeyBytes = kTileN * kChunks * kRowBytes;
  static constexpr int kKeysAt = kQueryStages * kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * kKeyBytes;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kSharedBytes = 1024 + kValuesAt + kStages * kKeyBytes;
};

/// Half-open.
struct Range {
  int begin, end;
};

/// A tile: its place among those of a head, its head (of all batches), and the key blocks that some row of it sees.
struct alignas(16) Tile {
  int m, head;  // m < 0: there is no tile left
  Range blocks;
};

/// Which tile comes t-th: sections of heads, within one the last rows (the longest) first, heads innermost.
__device__ inline Tile tile_at(const ForwardParams& p, int t) {
  const bool last = t >= p.last_heads * p.tiles_m;
  const int first = last ? p.last_heads : p.section_tiles.quotient(t) * p.section.divisor;
  const int within = t - first * p.tiles_m;
  const int rank = last ? p.last_section.quotient(within) : p.section.quotient(within);
  const int width = last ? p.last_section.divisor : p.section.divisor;
  return {p.tiles_m - 1 - rank, first + within - rank * width, {0, 0}};
}

/// Keys that a query row sees of those in [within.begin, within.end).
__device__ inline Range visible_keys(const ForwardParams& p, int row, Range within) {
  const int own = row + p.seq_k - p.seq_q;
  const int begin = min(max(own - p.behind, within.begin), within.end);
  return {begin, min(max(own + p.ahead + 1, begin), within.end)};
}

/// Key blocks of which some row in [first, last) sees a key.
template <int kTileN>
__device__ inline Range key_blocks(const ForwardParams& p, int first, int last) {
  const int offset = p.seq_k - p.seq_q;
  const int begin = max(0, first + offset - p.behind);
  const int end = min(p.seq_k, last + offset + p.ahead);
  if (end <= begin) return {0, 0};
  return {begin / kTileN, (end + kTileN - 1) / kTileN};
}

/// Position in a ring of stages: index, and parity of the phase, in one register.
template <int kStages>
struct Ring {
  int position = 0;
  __device__ int index() const { return kStages == 1 ? 0 : position < kStages ? position : position - kStages; }
  __device__ std::uint32_t phase() const { return position < kStages ? 0 : 1; }
  __device__ void advance() { position = position == 2 * kStages - 1 ? 0 : position + 1; }
};

template <int kStages, int kQueryStages>
struct alignas(16) ForwardBarriers {
  std::uint64_t query_full[kQueryStages], query_empty[kQueryStages];
  std::uint64_t key_full[kStages], key_empty[kStages], value_full[kStages], value_empty[kStages];
  std::uint64_t tile_full[2], tile_empty[2];
  Tile tile[2];
};

template <int kCount>
__device__ inline std::uint32_t at(std::uint64_t (&barriers)[kCount], int index) {
  return shared_address(&barriers[0]) + 8 * index;
}

}  // namespace attnbench::kernels::hopper
