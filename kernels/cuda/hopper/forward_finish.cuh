// The end of a tile: normalise, write, and put right what a hidden key's NaN or infinity reached.
//
// A hidden key of a block that other rows see has weight zero in the product P V, and zero times a NaN or an infinity
// of V is NaN, which stays NaN to the end. So nothing is checked while blocks are multiplied: a row whose output holds
// no NaN was not reached. One that does holds it rightly (a NaN that it sees) or wrongly; only if V at keys hidden from
// it is not finite is the row computed again, by one warp, from what the row sees alone.
#pragma once

#include "kernels/cuda/hopper/forward_step.cuh"

namespace attnbench::kernels::hopper {

template <typename T>
__device__ inline T* output_row(const ForwardParams& p, int head, int row) {
  const int batch = p.heads.quotient(head);
  return static_cast<T*>(p.out) + batch * p.out_stride_b + (head - batch * p.heads.divisor) * p.out_stride_h +
         row * p.out_stride_s;
}

template <typename T>
__device__ inline const T* input_row(const Rows& x, int batch, int head, int row) {
  return static_cast<const T*>(x.data) + batch * x.batch + head * x.head + row * x.row;
}

/// A warp's look at V[keys, :]: is anything there not finite?
template <typename T, int kHeadDim>
__device__ inline bool holds_non_finite(const ForwardParams& p, int batch, int kv_head, Range keys) {
  constexpr int kUnits = kHeadDim / 8;  // of 16 bytes
  std::uint32_t bits = 0;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < (keys.end - keys.begin) * kUnits; i += 32) {
    const T* row = input_row<T>(p.v, batch, kv_head, keys.begin + i / kUnits);
    const uint4 x = *reinterpret_cast<const uint4*>(row + i % kUnits * 8);
    bits |= non_finite<T>(x.x) | non_finite<T>(x.y) | non_finite<T>(x.z) | non_finite<T>(x.w);
  }
  return __any_sync(0xffffffffu, bits != 0);
}

template <typename T, int kHeadDim>
__device__ inline float dot(const T* a, const T* b) {
  float sum = 0.f;
#pragma unroll 1
  for (int d = 0; d < kHeadDim; d += 2) {
    const float2 x = widen<T>(*reinterpret_cast<const std::uint32_t*>(a + d));
    const float2 y = widen<T>(*reinterpret_cast<const std::uint32_t*>(b + d));
    sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
  }
  return sum;
}

/// One output row by one warp, keys in 32s, from global memory. Slow, and rare.
template <typename T, int kHeadDim>
__device__ inline void recompute_row(const ForwardParams& p, int all_head, int row, Range keys) {
  constexpr int kOwn = (kHeadDim + 63) / 64;  // pairs of columns of a lane
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int batch = p.heads.quotient(all_head), head = all_head - batch * p.heads.divisor;
  const int kv_head = p.group.quotient(head);
  const T* query = input_row<T>(p.q, batch, head, row);
  float2 o[kOwn] = {};
  float largest = -INFINITY, total = 0.f;
#pragma unroll 1
  for (int block = keys.begin; block < keys.end; block += 32) {
    float score = -INFINITY;
    if (block + lane < keys.end) {
      score = saturate(dot<T, kHeadDim>(query, input_row<T>(p.k, batch, kv_head, block + lane)));
    }
    float top = score;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    top = fmaxf(largest, top);
    const float origin = top == -INFINITY ? 0.f : top;
    const float alpha = exp2_approx((largest - origin) * p.scale_log2);
    const float weight = exp2_approx((score - origin) * p.scale_log2);
    largest = top;
    total = total * alpha + weight;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) o[i] = make_float2(o[i].x * alpha, o[i].y * alpha);
#pragma unroll 1
    for (int key = block; key < min(block + 32, keys.end); ++key) {
      const float w = __shfl_sync(0xffffffffu, weight, key - block);
      const T* value = input_row<T>(p.v, batch, kv_head, key);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int column = 64 * i + 2 * lane;
        if (column >= kHeadDim) continue;
        const float2 x = widen<T>(*reinterpret_cast<const std::uint32_t*>(value + column));
        o[i] = make_float2(fmaf(w, x.x, o[i].x), fmaf(w, x.y, o[i].y));
      }
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
  const float inverse = total == 0.f ? 0.f : 1.f / total;
  T* out = output_row<T>(p, all_head, row);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int column = 64 * i + 2 * lane;
    if (column >= kHeadDim) continue;
    *reinterpret_cast<std::uint32_t*>(out + column) = pack<T>(o[i].x * inverse, o[i].y * inverse);
  }
}

/// `votes`: a bit for every lane whose row of the upper or lower eight holds something that is not finite. `keys` are
/// those that the tile multiplied.
template <typename T, int kHeadDim>
__device__ inline void repair(const ForwardParams& p, int head, int warp_row, const unsigned (&votes)[2], Range keys) {
  const int batch = p.heads.quotient(head), kv_head = p.group.quotient(head - batch * p.heads.divisor);
#pragma unroll 1
  for (int r = 0; r < 16; ++r) {
    const int row = warp_row + r;
    if (row >= p.seq_q || ((r < 8 ? votes[0] : votes[1]) >> (4 * (r % 8)) & 0xf) == 0) continue;
    const Range seen = visible_keys(p, row, keys);
    if (holds_non_finite<T, kHeadDim>(p, batch, kv_head, {keys.begin, seen.begin}) ||
        holds_non_finite<T, kHeadDim>(p, batch, kv_head, {seen.end, keys.end})) {
      recompute_row<T, kHeadDim>(p, head, row, seen);
    }
  }
}

/// Sums rows `row` and `row` + 8 over their quad, writes lse, and returns 1 / sum, or 0 for a row that sees nothing.
__device__ inline void close_rows(const ForwardParams& p, const RowState& state, int head, int row,
                                  float (&inverse)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = state.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const int r = row + 8 * half;
    if (threadIdx.x % 4 == 0 && r < p.seq_q) {
      const long long at = static_cast<long long>(head) * p.seq_q + r;
      p.lse[at] = flash_cuda::natural_lse(state.max[half], state.max[half] * p.scale_log2, sum);
      if (p.saved != nullptr) {
        p.saved[at] = sum == 0.f ? make_float2(0.f, INFINITY) : make_float2(state.max[half], log2f(sum));
      }
    }
    inverse[half] = sum == 0.f ? 0.f : 1.f / sum;
  }
}

/// Writes O, normalised. Each lane of a quad ends up with eight neighbouring columns of its row. Returns in
/// `bits`, per row, whether anything written is not finite.
template <typename T, int kHeadDim>
__device__ inline void write_rows(const ForwardParams& p, const float (&o)[kHeadDim / 2], const float (&inverse)[2],
                                  int head, int row, std::uint32_t (&bits)[2]) {
  const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + 8 * half;
    const bool inside = r < p.seq_q;
    T* out = output_row<T>(p, head, r);
    bits[half] = 0;
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; j += 4) {
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (j + i) + 2 * half;
        a[i] = pack<T>(o[at] * inverse[half], o[at + 1] * inverse[half]);
        bits[half] |= non_finite<T>(a[i]);
      }
      transpose_quad(a);
      if (inside) *reinterpret_cast<uint4*>(out + 8 * (j + quad)) = make_uint4(a[0], a[1], a[2], a[3]);
    }
  }
}

/// The same through shared memory, one warp's 16 rows: `stage` is where their first chunk of columns lies, chunks are
/// kTileM rows apart. Returns before the copies have read it.
template <typename T, typename Shape>
__device__ inline void send_rows(const ForwardParams& p, const CUtensorMap* map, std::uint32_t stage,
                                 const float (&o)[Shape::kHeadDim / 2], const float (&inverse)[2], int head, int row,
                                 std::uint32_t (&bits)[2]) {
  constexpr std::uint32_t kSwizzle = Shape::kRowBytes / 16 - 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Lane i: row i % 16, columns 8 (i / 16) and on, of every 16 columns; a 16-byte unit's place is swizzled by the row.
  const std::uint32_t place = stage + lane % 16 * Shape::kRowBytes;
  bits[0] = bits[1] = 0;
#pragma unroll
  for (int j = 0; j < Shape::kHeadDim / 8; j += 2) {
    std::uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i % 2, at = 4 * (j + i / 2) + 2 * half;
      a[i] = pack<T>(o[at] * inverse[half], o[at + 1] * inverse[half]);
      bits[half] |= non_finite<T>(a[i]);
    }
    const int chunk = 8 * j / Shape::kColumns, unit = j % (Shape::kColumns / 8) + lane / 16;
    const std::uint32_t address = place + chunk * Shape::kTileM * Shape::kRowBytes + 16 * unit;
    store_matrices(address ^ ((address >> 7 & kSwizzle) << 4), a[0], a[1], a[2], a[3]);
  }
  fence_async_proxy();
  __syncwarp();
  if (lane != 0) return;
  const int batch = p.heads.quotient(head);
#pragma unroll
  for (int chunk = 0; chunk < Shape::kChunks; ++chunk) {
    copy_out(map, stage + chunk * Shape::kTileM * Shape::kRowBytes, chunk * Shape::kColumns, row,
             head - batch * p.heads.divisor, batch);
  }
  copy_out_commit();
}

/// What a warpgroup's tile is where none of its rows sees a key.
template <typename T, int kHeadDim, int kTileM>
__device__ inline void write_nothing(const ForwardParams& p, const Tile& tile, int group, int thread) {
  constexpr int kUnits = kHeadDim / 8;
#pragma unroll 1
  for (int i = thread; i < 64 * kUnits; i += 128) {
    const int row = tile.m * kTileM + group * 64 + i / kUnits;
    if (row >= p.seq_q) return;
    *reinterpret_cast<uint4*>(output_row<T>(p, tile.head, row) + i % kUnits * 8) = make_uint4(0, 0, 0, 0);
    if (i % kUnits != 0) continue;
    const long long at = static_cast<long long>(tile.head) * p.seq_q + row;
    p.lse[at] = -INFINITY;
    if (p.saved != nullptr) p.saved[at] = make_float2(0.f, INFINITY);
  }
}

}  // namespace attnbench::kernels::hopper
