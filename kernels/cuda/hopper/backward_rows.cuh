// The two small kernels around the backward: row statistics and a zeroed dQ sum before it, dQ's last step after it.
#pragma once

#include "kernels/cuda/hopper/backward.cuh"

namespace attnbench::kernels::hopper {

struct RowsParams {
  Rows o, dout;
  const float* lse;  // [B, H, Sq], natural log
  float* stat_lse;   // BackwardParams::lse
  float* stat_delta;
  float* dq_sum;
  int* counter;         // BackwardParams::counter
  int* turns;           // BackwardParams::turns
  long long all_turns;  // of them; 0: none
  int heads, seq_q;
  int rows;            // per head, whole tiles
  long long all_rows;  // batch * heads * rows
};

struct ConvertRowsParams {
  const float* dq_sum;
  void* dq;
  long long batch, head, row;  // strides of dq, elements
  int heads, seq_q;
  int slices;  // per head
  float scale;
};

template <typename T>
__device__ inline float2 unpack(std::uint32_t pair) {
  return make_float2(flash_cuda::Element<T>::low(pair), flash_cuda::Element<T>::high(pair));
}

/// 16-byte pieces of a row of dQ's sum, and lanes for it: as many as divide its pieces and can exchange sums.
template <int kHeadDim>
inline constexpr int kRowPieces = chunks_of(kHeadDim) * 8;
template <int kHeadDim>
inline constexpr int kRowLanes = kRowPieces<kHeadDim> & -kRowPieces<kHeadDim>;

/// kRowLanes lanes per row: delta, lse in base 2, and zeros for the row's share of the dQ sum.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(256) backward_rows_kernel(const RowsParams p) {
  constexpr int kLanes = kRowLanes<kHeadDim>;
  const long long index = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x;
  const long long row = index / kLanes;
  const int lane = static_cast<int>(index % kLanes);
  if (index == 0) *p.counter = 0;
  if (index < p.all_turns) p.turns[index] = 0;
  if (row >= p.all_rows) return;
  const long long head = row / p.rows;
  const int query = static_cast<int>(row - head * p.rows);
  const long long batch = head / p.heads;
  const long long in_batch = head - batch * p.heads;
  const T* o = static_cast<const T*>(p.o.data) + batch * p.o.batch + in_batch * p.o.head + query * p.o.row;
  const T* g = static_cast<const T*>(p.dout.data) + batch * p.dout.batch + in_batch * p.dout.head + query * p.dout.row;
  float delta = 0.f;
#pragma unroll
  for (int first = 0; first < kRowPieces<kHeadDim>; first += kLanes) {
    const int piece = first + lane;
    float4* sum = reinterpret_cast<float4*>(p.dq_sum) + (row * kRowPieces<kHeadDim> + piece) * 2;
    sum[0] = sum[1] = make_float4(0.f, 0.f, 0.f, 0.f);
    if (query >= p.seq_q || piece >= kHeadDim / 8) continue;
    const uint4 x = *reinterpret_cast<const uint4*>(o + piece * 8);
    const uint4 y = *reinterpret_cast<const uint4*>(g + piece * 8);
    const std::uint32_t xs[4] = {x.x, x.y, x.z, x.w};
    const std::uint32_t ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 a = unpack<T>(xs[i]);
      const float2 b = unpack<T>(ys[i]);
      delta = fmaf(a.x, b.x, fmaf(a.y, b.y, delta));
    }
  }
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) delta += __shfl_xor_sync(0xffffffffu, delta, step);
  if (lane == 0) {
    // A row that sees no key, or is none: +inf makes its P zero, and its delta must not be NaN * 0.
    const float lse = query < p.seq_q ? p.lse[head * p.seq_q + query] : -INFINITY;
    p.stat_lse[row] = lse == -INFINITY ? INFINITY : lse * flash_cuda::kLog2e;
    p.stat_delta[row] = lse == -INFINITY ? 0.f : delta;
  }
}

/// One block per tile of keys: zeros where no query sees any of them, the tiles that the backward leaves out.
template <int kHeadDim, int kTileM, int kKeys>
__global__ void __launch_bounds__(kKeys) backward_unseen_kernel(const BackwardParams p) {
  const flash_cuda::Work work = work_of(p, static_cast<int>(blockIdx.x));
  const int row = work.tile * kKeys + static_cast<int>(threadIdx.x);
  if (steps_of<kTileM, kKeys>(p.shape, work.tile * kKeys).count > 0 || row >= p.shape.seq_k) return;
  for (const Rows& gradient : {p.dk, p.dv}) {
    char* out = static_cast<char*>(gradient.data) +
                2 * (work.batch * gradient.batch + work.head_in_batch * gradient.head + row * gradient.row);
    for (int i = 0; i < kHeadDim / 8; ++i) *reinterpret_cast<uint4*>(out + i * 16) = make_uint4(0, 0, 0, 0);
  }
}

/// One block per slice: dq = scale * dq_sum.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(128) backward_convert_kernel(const ConvertRowsParams p) {
  const long long slice = blockIdx.x;
  const long long head = slice / p.slices;
  const int in_head = static_cast<int>(slice - head * p.slices);
  const long long batch = head / p.heads;
  const int thread = static_cast<int>(threadIdx.x);
  const float4* sum = reinterpret_cast<const float4*>(p.dq_sum) + slice * (kSliceFloats / 4) + thread;
  float x[32];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float4 four = sum[j * 128];
    x[4 * j] = four.x;
    x[4 * j + 1] = four.y;
    x[4 * j + 2] = four.z;
    x[4 * j + 3] = four.w;
  }
  constexpr int kChunks = chunks_of(kHeadDim);
  const int row = in_head / kChunks * 64 + thread / 32 * 16 + thread % 32 / 4;
  const int column = in_head % kChunks * 64;
  T* out = static_cast<T*>(p.dq) + batch * p.batch + (head - batch * p.heads) * p.head + column;
  store_rows<T, 64>(out, p.row, row, p.seq_q, x, p.scale, min(kHeadDim - column, 64));
}

}  // namespace attnbench::kernels::hopper
