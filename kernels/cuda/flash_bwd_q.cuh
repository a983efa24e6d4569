// Backward over queries: dQ alone, one block per query tile, keys stream past. Recomputes P and dP, so the backward
// costs seven products instead of five, but nothing is added across blocks: the deterministic mode.
#pragma once

#include "kernels/cuda/flash_softmax.cuh"

namespace attnbench::kernels::flash_cuda {

template <typename E_, int D_, int P_, BwdQConfig C_>
struct BwdQTile {
  using E = E_;
  static constexpr int D = D_;
  static constexpr int P = P_;
  static constexpr BwdQConfig C = C_;
  static constexpr int kRows = C.rows();
  static constexpr int kThreads = C.threads();
  static constexpr int kKeyTiles = C.key_tile / 8;
  static constexpr int kOutTiles = D / 8;
  static constexpr int kSteps = D / 16;
  static constexpr int kRow = row_bytes(D);
  static constexpr std::uint32_t kQPlane = kRows * kRow;
  static constexpr std::uint32_t kKvPlane = C.key_tile * kRow;
  static constexpr std::uint32_t kVAt = P * kKvPlane;  // from a stage's start
  static constexpr std::uint32_t kStage = 2 * P * kKvPlane;
  static constexpr std::uint32_t kStagesAt = 2 * P * kQPlane;  // Q, dO before
};

/// Of a lane's two rows: (lse in base 2, delta), and what the forward saved where a row of the warp is far.
struct RowStats {
  float2 stats[2];
  float2 saved[2];
  bool far;  // the same in all lanes
};

template <int kPlanes>
__device__ __forceinline__ RowStats load_row_stats(const BwdParams& params, std::int64_t head_row, int row) {
  RowStats rows;
  bool far = false;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool valid = row + h * 8 < params.shape.seq_q;
    rows.stats[h] = valid ? params.stats[head_row + row + h * 8] : make_float2(0.0f, 0.0f);
    rows.saved[h] = make_float2(0.0f, 0.0f);
    far = far || (fabsf(rows.stats[h].x) > kFarLse<kPlanes> && fabsf(rows.stats[h].x) < INFINITY);
  }
  rows.far = __any_sync(0xffffffffu, far);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (rows.far && row + h * 8 < params.shape.seq_q) rows.saved[h] = params.saved[head_row + row + h * 8];
  }
  return rows;
}

/// dS in place of dP, from the scores `p`. kFar: by what the forward saved of the rows instead of their lse.
template <typename T, bool kMasked, bool kFar>
__device__ __forceinline__ void dq_weights(const float (&p)[1][T::kKeyTiles][4], float (&ds)[1][T::kKeyTiles][4],
                                           const Shape& shape, const RowStats& rows, int row, int key, int lane) {
  const float c = shape.scale * kLog2e;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    Range range{0, shape.seq_k};
    if constexpr (kMasked) range = visible_keys(shape, row + h * 8);
    const int first = range.begin - key - (lane & 3) * 2;
    const int last = range.end - key - (lane & 3) * 2;
#pragma unroll
    for (int n = 0; n < T::kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float s = p[0][n][2 * h + i];
        const float weight =
            ex2(kFar ? log2_weight(shape.negative ? -s : s, rows.saved[h].x, rows.saved[h].y, shape.scale_log2)
                     : fmaf(s, c, -rows.stats[h].x));
        float gradient = weight * (ds[0][n][2 * h + i] - rows.stats[h].y);
        if (kMasked && (n * 8 + i < first || n * 8 + i >= last)) gradient = 0.0f;
        ds[0][n][2 * h + i] = gradient;
      }
    }
  }
}

/// One key tile for one warp (16 query rows): scores, dP, dS, dQ. Addresses include the lane's offsets.
template <typename T, bool kMasked>
__device__ __forceinline__ void dq_tile_step(float (&dq)[1][T::kOutTiles][4], const Shape& shape, const RowStats& rows,
                                             std::uint32_t q_address, std::uint32_t kv_nt, std::uint32_t k_nn, int row,
                                             int key, int lane) {
  using E = typename T::E;
  float p[1][T::kKeyTiles][4] = {};
  float ds[1][T::kKeyTiles][4] = {};
#pragma unroll
  for (int k = 0; k < T::kSteps; ++k) {
    std::uint32_t a[1][T::P][4];
    load_a<T::kRow, T::P, 1>(a, q_address + k * 32, T::kQPlane);
    step_nt<E, T::kRow, T::P>(p, a, kv_nt + k * 32, T::kKvPlane);
    load_a<T::kRow, T::P, 1>(a, q_address + T::P * T::kQPlane + k * 32, T::kQPlane);
    step_nt<E, T::kRow, T::P, Terms::kFour>(ds, a, kv_nt + T::kVAt + k * 32, T::kKvPlane);
  }
  if (rows.far) {
    dq_weights<T, kMasked, true>(p, ds, shape, rows, row, key, lane);
  } else {
    dq_weights<T, kMasked, false>(p, ds, shape, rows, row, key, lane);
  }
  std::uint32_t ignored = 0;
#pragma unroll
  for (int k = 0; k < T::kKeyTiles / 2; ++k) {
    std::uint32_t a[1][T::P][4];
    as_a<E, T::P>(a[0], ds[0][2 * k], ds[0][2 * k + 1]);
    step_nn<E, T::kRow, T::P, kMasked>(dq, a, k_nn + k * 16 * T::kRow, T::kKvPlane, ignored);
  }
}

/// Stores the rows `row` and `row` + 8 of a lane.
template <typename T>
__device__ __forceinline__ void store_dq(const float (&dq)[1][T::kOutTiles][4], const BwdParams& params,
                                         const Work& work, int row, int lane) {
  using Out = typename OutputOf<typename T::E, T::P>::Type;
  Out* out = static_cast<Out*>(params.dq.data) + work.batch * params.dq.batch + work.head_in_batch * params.dq.head;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + h * 8 >= params.shape.seq_q) continue;
#pragma unroll
    for (int n = 0; n < T::kOutTiles; ++n) {
      store_pair(out + (row + h * 8) * params.dq.row, params.dq, n * 8 + (lane & 3) * 2, params.shape.head_dim,
                 dq[0][n][2 * h] * params.shape.scale, dq[0][n][2 * h + 1] * params.shape.scale);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::C.blocks_per_sm) flash_backward_q(const BwdParams params) {
  extern __shared__ __align__(128) char shared[];
  constexpr BwdQConfig C = T::C;
  const Shape& shape = params.shape;
  const int thread = threadIdx.x;
  const int lane = thread & 31;
  const int warp = thread >> 5;
  const Work work = decode_work(params.order, shape.heads);
  const int row0 = (params.order.tiles - 1 - work.tile) * T::kRows;
  const int row_last = min(row0 + T::kRows, shape.seq_q) - 1;
  const auto [top, bottom, first, count] = key_tiles<C.key_tile>(shape, row0, row_last);
  const int chunks = (shape.head_dim + 7) / 8;
  const int kv_head = work.head_in_batch / shape.group;
  const char* k = head_start(params.k, work.batch, kv_head);
  const char* v = head_start(params.v, work.batch, kv_head);
  const char* q = head_start(params.q, work.batch, work.head_in_batch);
  const char* dout = head_start(params.dout, work.batch, work.head_in_batch);

  const std::uint32_t base = shared_address(shared);
  const auto load_step = [&](int step) {
    if (step < count) {
      const std::uint32_t target = base + T::kStagesAt + (step % C.stages) * T::kStage;
      const int key0 = (first + step) * C.key_tile;
      load_two_tiles<T::D, C.key_tile, T::kThreads, T::P>(target, k, params.k, target + T::kVAt, v, params.v, key0,
                                                          shape.seq_k, chunks, thread);
    }
    cp_async_commit();
  };
  load_two_tiles<T::D, T::kRows, T::kThreads, T::P>(base, q, params.q, base + T::P * T::kQPlane, dout, params.dout,
                                                    row0, shape.seq_q, chunks, thread);
#pragma unroll
  for (int i = 0; i < (C.stages > 1 ? C.stages - 1 : 1); ++i) load_step(i);

  const int row = row0 + warp * 16 + lane / 4;
  const RowStats rows = load_row_stats<T::P>(params, work.head * shape.seq_q, row);
  float dq[1][T::kOutTiles][4] = {};
  const std::uint32_t q_address = base + warp * 16 * T::kRow + lane_rows<T::kRow>(lane);
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    cp_async_wait<(C.stages > 1 ? C.stages - 2 : 0)>();
    __syncthreads();
    if constexpr (C.stages > 1) load_step(i + C.stages - 1);
    const std::uint32_t stage = base + T::kStagesAt + (i % C.stages) * T::kStage;
    const int key = (first + i) * C.key_tile;
    const std::uint32_t kv_nt = stage + lane_columns<T::kRow>(lane);
    const std::uint32_t k_nn = stage + lane_rows<T::kRow>(lane);
    if (key >= bottom.begin && key + C.key_tile <= top.end) {
      dq_tile_step<T, false>(dq, shape, rows, q_address, kv_nt, k_nn, row, key, lane);
    } else {
      dq_tile_step<T, true>(dq, shape, rows, q_address, kv_nt, k_nn, row, key, lane);
    }
    if constexpr (C.stages == 1) {
      __syncthreads();
      load_step(i + 1);
    }
  }
  cp_async_wait<0>();
  store_dq<T>(dq, params, work, row, lane);
}

}  // namespace attnbench::kernels::flash_cuda
