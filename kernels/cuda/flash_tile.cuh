// Pieces that the flash kernels share: tile order, the mask, loading tiles, products of tiles, storing rows.
#pragma once

#include "kernels/cuda/flash_config.cuh"
#include "kernels/cuda/flash_params.cuh"
#include "kernels/cuda/mma.cuh"

namespace attnbench::kernels::flash_cuda {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

/// Bytes of one shared-memory row of a D-wide tile.
template <int D>
inline constexpr int kRowBytesOf = row_bytes(D);

/// The type outputs are stored in: the problem's own.
template <typename E, int kPlanes>
struct OutputOf {
  using Type = E;
};
template <typename E>
struct OutputOf<E, 2> {
  using Type = float;
};

/// Which head and which tile (0 = to be started first) this block works on.
struct Work {
  std::int64_t head;  // over batch * heads
  int batch;
  int head_in_batch;
  int tile;
};

__device__ __forceinline__ Work decode_work(const Order& order, int heads_per_batch) {
  unsigned index = blockIdx.x;
  const unsigned fold = static_cast<unsigned>(order.fold);
  if (fold > 0 && index >= fold) index = gridDim.x - 1 - (index - fold);
  const unsigned per_section = static_cast<unsigned>(order.section) * static_cast<unsigned>(order.tiles);
  const unsigned section = index / per_section;
  const unsigned rest = index - section * per_section;
  const std::int64_t first = static_cast<std::int64_t>(section) * order.section;
  const std::int64_t left = order.heads - first;
  const unsigned count = left < order.section ? static_cast<unsigned>(left) : static_cast<unsigned>(order.section);
  Work work;
  work.tile = static_cast<int>(rest / count);
  work.head = first + rest % count;
  work.batch = static_cast<int>(work.head / heads_per_batch);
  work.head_in_batch = static_cast<int>(work.head - static_cast<std::int64_t>(work.batch) * heads_per_batch);
  return work;
}

/// Half-open range of keys that a query sees (kernels::visible_keys), or of queries that see a key.
struct Range {
  int begin;
  int end;
};

__device__ __forceinline__ Range visible_keys(const Shape& shape, int query) {
  const int diagonal = query + shape.seq_k - shape.seq_q;
  Range range{0, shape.seq_k};
  if (shape.causal) range.end = min(max(diagonal + 1, 0), shape.seq_k);
  if (shape.window >= 0) range.begin = min(max(diagonal - shape.window, 0), shape.seq_k);
  return range;
}

__device__ __forceinline__ Range visible_queries(const Shape& shape, int key) {
  const int offset = shape.seq_k - shape.seq_q;
  Range range{0, shape.seq_q};
  if (shape.causal) range.begin = min(max(key - offset, 0), shape.seq_q);
  if (shape.window >= 0) {
    const std::int64_t end = static_cast<std::int64_t>(key) - offset + shape.window + 1;
    range.end = static_cast<int>(end < 0 ? 0 : (end > shape.seq_q ? shape.seq_q : end));
  }
  return range;
}

/// The key tiles that some query of a block sees. Tiles between bottom.begin and top.end are seen by all of them and
/// need no mask.
struct KeyTiles {
  Range top;     // of the first query
  Range bottom;  // of the last query
  int first;
  int count;
};

template <int kKeys>
__device__ __forceinline__ KeyTiles key_tiles(const Shape& shape, int row_first, int row_last) {
  KeyTiles tiles;
  tiles.top = visible_keys(shape, row_first);
  tiles.bottom = visible_keys(shape, row_last);
  tiles.first = tiles.top.begin / kKeys;
  tiles.count = tiles.bottom.end > tiles.top.begin ? (tiles.bottom.end + kKeys - 1) / kKeys - tiles.first : 0;
  return tiles;
}

/// Copies kRows rows of D elements, all planes, into shared memory; zeros beyond `rows` and beyond the stored width.
template <int D, int kRows, int kThreads, int kPlanes>
__device__ __forceinline__ void load_tile(std::uint32_t target, const char* source, std::int64_t row_stride_bytes,
                                          std::int64_t plane_bytes, int row0, int rows, int chunks, int thread) {
  constexpr int kChunks = D / 8;
  constexpr int kTotal = kRows * kChunks;
#pragma unroll
  for (int i = 0; i < (kTotal + kThreads - 1) / kThreads; ++i) {
    const int index = thread + i * kThreads;
    if (kTotal % kThreads != 0 && index >= kTotal) break;
    const int row = index / kChunks;
    const int chunk = index % kChunks;
    const bool valid = row0 + row < rows && chunk < chunks;
    const char* from = source + (row0 + row) * row_stride_bytes + chunk * 16;
    const std::uint32_t to = target + row * kRowBytesOf<D> + chunk * 16;
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) {
      cp_async_16(to + p * kRows * kRowBytesOf<D>, valid ? from + p * plane_bytes : source, valid);
    }
  }
}

/// The first element of one head.
__device__ __forceinline__ const char* head_start(const Input& input, int batch, int head) {
  return static_cast<const char*>(input.data) + 2 * (batch * input.batch + head * input.head);
}

/// load_tile for the same rows of two tensors: `a` and `b` are their head_start, the second tile lies at `b_target`.
template <int D, int kRows, int kThreads, int kPlanes>
__device__ __forceinline__ void load_two_tiles(std::uint32_t a_target, const char* a, const Input& a_input,
                                               std::uint32_t b_target, const char* b, const Input& b_input, int row0,
                                               int rows, int chunks, int thread) {
  load_tile<D, kRows, kThreads, kPlanes>(a_target, a, a_input.row * 2, a_input.plane * 2, row0, rows, chunks, thread);
  load_tile<D, kRows, kThreads, kPlanes>(b_target, b, b_input.row * 2, b_input.plane * 2, row0, rows, chunks, thread);
}

/// Byte offsets of a lane for the two ways ldmatrix.x4 is used on a row-major tile.
/// `lane_rows`: A fragments, and B fragments of a [k][n] tile through .trans (two n8 tiles by one k16 step).
/// `lane_columns`: B fragments of an [n][k] tile (two n8 tiles by one k16 step), and A fragments of a [k][m] tile
/// through .trans.
template <int kRowBytes>
__device__ __forceinline__ std::uint32_t lane_rows(int lane) {
  return (lane & 15) * kRowBytes + (lane >> 4) * 16;
}
template <int kRowBytes>
__device__ __forceinline__ std::uint32_t lane_columns(int lane) {
  return ((lane & 7) + ((lane >> 4) << 3)) * kRowBytes + ((lane >> 3) & 1) * 16;
}

/// Which products of two planes each a product has, and their order. kAFirst: hi hi, lo(a) hi(b), hi(a) lo(b); kBFirst
/// exchanges the last two, so that a b and its transpose add up in the same order. kFour has lo lo too: what is left
/// then is the rounding of the planes alone, which cancels where both sides of a difference are made from them.
/// hi hi comes first because it has the sign of the sum: where the others overflow too, the infinity is the right one.
enum class Terms { kAFirst, kBFirst, kFour };

/// acc[:, nt], acc[:, nt + 1] += a b over one k16 step.
template <typename E, int kPlanes, Terms kTerms = Terms::kAFirst, int kFragsM, int kTilesN>
__device__ __forceinline__ void multiply(float (&acc)[kFragsM][kTilesN][4],
                                         const std::uint32_t (&a)[kFragsM][kPlanes][4],
                                         const std::uint32_t (&b)[kPlanes][4], int nt) {
  const auto add = [&](int plane_a, int plane_b) {
#pragma unroll
    for (int m = 0; m < kFragsM; ++m) {
      Element<E>::mma(acc[m][nt], a[m][plane_a], b[plane_b][0], b[plane_b][1]);
      Element<E>::mma(acc[m][nt + 1], a[m][plane_a], b[plane_b][2], b[plane_b][3]);
    }
  };
  add(0, 0);
  if constexpr (kPlanes == 2) {
    constexpr int kFirst = kTerms == Terms::kBFirst ? 0 : 1;
    add(kFirst, 1 - kFirst);
    add(1 - kFirst, kFirst);
    if constexpr (kTerms == Terms::kFour) add(1, 1);
  }
}

/// A fragments of one k16 step from a row-major tile; `address` includes lane_rows.
template <int kRowBytes, int kPlanes, int kFragsM>
__device__ __forceinline__ void load_a(std::uint32_t (&a)[kFragsM][kPlanes][4], std::uint32_t address,
                                       std::uint32_t plane_bytes) {
#pragma unroll
  for (int m = 0; m < kFragsM; ++m) {
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) ldmatrix_x4(a[m][p], address + p * plane_bytes + m * 16 * kRowBytes);
  }
}

/// acc += A B^T, one k16 step: B rows [n][k]; `b_address` includes lane_columns and the step's k offset.
template <typename E, int kRowBytes, int kPlanes, Terms kTerms = Terms::kAFirst, int kFragsM, int kTilesN>
__device__ __forceinline__ void step_nt(float (&acc)[kFragsM][kTilesN][4],
                                        const std::uint32_t (&a)[kFragsM][kPlanes][4], std::uint32_t b_address,
                                        std::uint32_t plane_bytes) {
#pragma unroll
  for (int n = 0; n < kTilesN; n += 2) {
    std::uint32_t b[kPlanes][4];
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) ldmatrix_x4(b[p], b_address + p * plane_bytes + n * 8 * kRowBytes);
    multiply<E, kPlanes, kTerms>(acc, a, b, n);
  }
}

/// acc += A B, one k16 step: B rows [k][n]; `b_address` includes lane_rows and the step's row offset.
/// kGuard: infinities and NaN of B count as zero and are reported in `bad`: a masked position has weight 0, and
/// 0 * NaN must not reach rows that do not see it (add_non_finite puts them back for the rows that do).
template <typename E, int kRowBytes, int kPlanes, bool kGuard, int kFragsM, int kTilesN>
__device__ __forceinline__ void step_nn(float (&acc)[kFragsM][kTilesN][4],
                                        const std::uint32_t (&a)[kFragsM][kPlanes][4], std::uint32_t b_address,
                                        std::uint32_t plane_bytes, std::uint32_t& bad) {
#pragma unroll
  for (int n = 0; n < kTilesN; n += 2) {
    std::uint32_t b[kPlanes][4];
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) ldmatrix_x4_trans(b[p], b_address + p * plane_bytes + n * 16);
    if constexpr (kGuard) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bad |= non_finite_bits<E>(b[0][i]);
        b[0][i] = finite_or_zero<E>(b[0][i]);
      }
    }
    multiply<E, kPlanes>(acc, a, b, n);
  }
}

/// Two horizontally neighbouring C tiles as the A fragment of the next product.
template <typename E, int kPlanes>
__device__ __forceinline__ void as_a(std::uint32_t (&a)[kPlanes][4], const float (&left)[4], const float (&right)[4]) {
  std::uint32_t r[kPlanes];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float(&from)[4] = i < 2 ? left : right;
    pack_planes<E, kPlanes>(r, from[(i & 1) * 2], from[(i & 1) * 2 + 1]);
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) a[p][i] = r[p];
  }
}

/// Adds to acc[row][column] the infinities and NaN of `tile` (plane 0, [keys][columns]) at rows `visible(row)` of the
/// tile, `row` counted from the fragment's first. Rare: runs only when a masked tile holds such values.
template <typename E, int kRowBytes, int kFragsM, int kTilesN, typename Visible>
__device__ __forceinline__ void add_non_finite(float (&acc)[kFragsM][kTilesN][4], const char* tile, int tile_rows,
                                               int lane, Visible visible) {
#pragma unroll 1
  for (int k = 0; k < tile_rows; ++k) {
    bool sees[kFragsM][2];
#pragma unroll
    for (int m = 0; m < kFragsM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) sees[m][half] = visible(m * 16 + half * 8 + lane / 4, k);
    }
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      const std::uint32_t pair =
          *reinterpret_cast<const std::uint32_t*>(tile + k * kRowBytes + (n * 8 + (lane & 3) * 2) * 2);
      const std::uint32_t bits = non_finite_bits<E>(pair);
      if (bits == 0) continue;
      const float low = bits & 0x00008000u ? Element<E>::low(pair) : 0.0f;
      const float high = bits & 0x80000000u ? Element<E>::high(pair) : 0.0f;
#pragma unroll
      for (int m = 0; m < kFragsM; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (!sees[m][half]) continue;
          acc[m][n][half * 2] += low;
          acc[m][n][half * 2 + 1] += high;
        }
      }
    }
  }
}

/// Stores two neighbouring columns of a row, as far as the row has them.
template <typename Out>
__device__ __forceinline__ void store_pair(Out* row, const Output& out, int column, int width, float x, float y) {
  if constexpr (sizeof(Out) == 4) {
    if (out.pairs && column + 1 < width) {
      *reinterpret_cast<float2*>(row + column) = make_float2(x, y);
      return;
    }
    if (column < width) row[column * out.column] = x;
    if (column + 1 < width) row[(column + 1) * out.column] = y;
  } else {
    if (out.pairs && column + 1 < width) {
      *reinterpret_cast<std::uint32_t*>(row + column) = Element<Out>::pack(x, y);
      return;
    }
    if (column < width) row[column * out.column] = Element<Out>::from_float(x);
    if (column + 1 < width) row[(column + 1) * out.column] = Element<Out>::from_float(y);
  }
}

}  // namespace attnbench::kernels::flash_cuda
