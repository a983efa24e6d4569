// Backward over keys: one block per key tile, query tiles stream past; dK and dV stay in registers, dQ is added to a
// sum in global memory (or left to the dQ kernel).
//
// With P = 2^(scale log2(e) s - lse log2(e)) recomputed from the saved lse and delta_i = sum_d dO_id O_id:
//   dV = P^T dO   dS = P (dO V^T - delta)   dK = scale dS^T Q   dQ = scale dS K
// Everything is computed transposed (rows are keys), so that P^T and dS^T are the A operands of dV and dK straight from
// registers; only dQ, whose rows are queries, needs dS in shared memory.
//
// Source: Dao et al. 2022, algorithm 4; Dao 2023, section 3.1.2.
#pragma once

#include "kernels/cuda/flash_softmax.cuh"

namespace attnbench::kernels::flash_cuda {

template <typename E_, int D_, int P_, BwdKvConfig C_>
struct BwdKvTile {
  using E = E_;
  static constexpr int D = D_;
  static constexpr int P = P_;
  static constexpr BwdKvConfig C = C_;
  static constexpr int kFrags = C.frags_m;
  static constexpr int kRows = C.rows();  // keys per block
  static constexpr int kThreads = C.threads();
  static constexpr int kWarps = kThreads / 32;
  static constexpr bool kExchange = C.warps_d > 1;
  static constexpr int kQueries = C.query_tile;
  static constexpr int kSubTiles = C.query_sub / 8;
  static constexpr int kColumns = D / C.warps_d;  // of dK and dV per warp
  static constexpr int kOutTiles = kColumns / 8;
  static constexpr int kSteps = D / 16;
  static constexpr int kRow = row_bytes(D);
  static constexpr int kScoreRow = row_bytes(kQueries);
  static constexpr std::uint32_t kKvPlane = kRows * kRow;
  static constexpr std::uint32_t kQPlane = kQueries * kRow;
  static constexpr std::uint32_t kScorePlane = kRows * kScoreRow;
  // Shared memory: K, V, then stages of (Q, dO), stages of stats, dS, and P where it is exchanged.
  static constexpr std::uint32_t kVAt = P * kKvPlane;
  static constexpr std::uint32_t kStagesAt = 2 * P * kKvPlane;
  static constexpr std::uint32_t kStage = 2 * P * kQPlane;
  static constexpr std::uint32_t kStatsAt = kStagesAt + C.stages * kStage;
  static constexpr std::uint32_t kStats = kQueries * 8;
  static constexpr std::uint32_t kDsAt = kStatsAt + C.stages * kStats;
  static constexpr std::uint32_t kPAt = kDsAt + P * kScorePlane;
  static constexpr int kDqWarpsD = kWarps / C.dq_warps_q;
  static constexpr int kDqFrags = kQueries / C.dq_warps_q / 16;
  static constexpr int kDqTiles = D / kDqWarpsD / 8;
  static_assert(kDqFrags * 16 * C.dq_warps_q == kQueries && kDqTiles * 8 * kDqWarpsD == D && kDqTiles % 2 == 0);
  static_assert(!kExchange || C.query_sub * C.warps_d == kQueries);
};

template <typename T>
struct BwdKvState {
  float dk[T::kFrags][T::kOutTiles][4];
  float dv[T::kFrags][T::kOutTiles][4];
};

__device__ __forceinline__ void add_to_global(float* target, float x, float y) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};\n" ::"l"(target), "f"(x), "f"(y) : "memory");
#else
  atomicAdd(target, x);
  atomicAdd(target + 1, y);
#endif
}

/// Turns scores into base-2 logarithms of weights, by what the forward saved of the head's rows instead of their lse.
template <typename T>
__device__ __forceinline__ void exact_log2_weights(float (&p)[T::kFrags][T::kSubTiles][4], const Shape& shape,
                                                   const float2* saved, int query, int lane) {
#pragma unroll
  for (int n = 0; n < T::kSubTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = query + n * 8 + (lane & 3) * 2 + i;
      const float2 row = at < shape.seq_q ? saved[at] : make_float2(0.0f, 0.0f);
#pragma unroll
      for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float s = shape.negative ? -p[m][n][2 * h + i] : p[m][n][2 * h + i];
          p[m][n][2 * h + i] = log2_weight(s, row.x, row.y, shape.scale_log2);
        }
      }
    }
  }
}

/// P = 2^(c p - lse) and dS = P (dP - delta) in place of scores and dP. kLog2: p has had its lse taken away already.
template <typename T, bool kLog2>
__device__ __forceinline__ void weigh(float (&p)[T::kFrags][T::kSubTiles][4], float (&ds)[T::kFrags][T::kSubTiles][4],
                                      const float2* stats, float c, int lane) {
#pragma unroll
  for (int n = 0; n < T::kSubTiles; ++n) {
    const float4 two = *reinterpret_cast<const float4*>(stats + n * 8 + (lane & 3) * 2);  // lse, delta of two queries
#pragma unroll
    for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float lse = i & 1 ? two.z : two.x;
        const float delta = i & 1 ? two.w : two.y;
        p[m][n][i] = ex2(kLog2 ? p[m][n][i] : fmaf(p[m][n][i], c, -lse));
        ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - delta);
      }
    }
  }
}

/// P^T and dS^T of the warp's keys against query_sub queries, in registers: p holds P, ds holds dS on return.
/// `query` and `key` are the first of the sub-tile and of the warp; addresses include the lane's offsets. `saved`:
/// null, or the head's rows as the forward saved them, to be used instead of the lse of `stats`.
template <typename T, bool kMasked>
__device__ __forceinline__ void scores_step(float (&p)[T::kFrags][T::kSubTiles][4],
                                            float (&ds)[T::kFrags][T::kSubTiles][4], const Shape& shape,
                                            std::uint32_t k_address, std::uint32_t q_address, const float2* stats,
                                            const float2* saved, int query, int key, int lane) {
  using E = typename T::E;
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int n = 0; n < T::kSubTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) p[m][n][i] = ds[m][n][i] = 0.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < T::kSteps; ++k) {
    std::uint32_t a[T::kFrags][T::P][4];
    load_a<T::kRow, T::P, T::kFrags>(a, k_address + k * 32, T::kKvPlane);
    step_nt<E, T::kRow, T::P, Terms::kBFirst>(p, a, q_address + k * 32, T::kQPlane);
    load_a<T::kRow, T::P, T::kFrags>(a, k_address + T::kVAt + k * 32, T::kKvPlane);
    step_nt<E, T::kRow, T::P, Terms::kFour>(ds, a, q_address + T::P * T::kQPlane + k * 32, T::kQPlane);
  }
  if (saved != nullptr) {
    exact_log2_weights<T>(p, shape, saved, query, lane);
    weigh<T, true>(p, ds, stats, 1.0f, lane);
  } else {
    weigh<T, false>(p, ds, stats, shape.scale * kLog2e, lane);
  }
  if constexpr (kMasked) {
#pragma unroll
    for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = key + m * 16 + h * 8 + lane / 4;
        Range range = visible_queries(shape, row);
        if (row >= shape.seq_k) range = {0, 0};
        const int first = range.begin - query - (lane & 3) * 2;
        const int last = range.end - query - (lane & 3) * 2;
#pragma unroll
        for (int n = 0; n < T::kSubTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if (n * 8 + i < first || n * 8 + i >= last) p[m][n][2 * h + i] = ds[m][n][2 * h + i] = 0.0f;
          }
        }
      }
    }
  }
}

/// Stores a C fragment set as 16-bit planes, rows as they are (keys), at `target` (lane / 4 and lane % 4 included).
template <typename T>
__device__ __forceinline__ void store_scores(char* target, const float (&x)[T::kFrags][T::kSubTiles][4]) {
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int n = 0; n < T::kSubTiles; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        std::uint32_t r[T::P];
        pack_planes<typename T::E, T::P>(r, x[m][n][2 * h], x[m][n][2 * h + 1]);
#pragma unroll
        for (int plane = 0; plane < T::P; ++plane) {
          *reinterpret_cast<std::uint32_t*>(target + plane * T::kScorePlane + (m * 16 + h * 8) * T::kScoreRow +
                                            n * 16) = r[plane];
        }
      }
    }
  }
}

/// dQ of the step: dS (shared, keys by queries) times K, added to the global sum.
template <typename T, bool kMasked>
__device__ __forceinline__ void add_dq(float* dq_sum, std::uint32_t shared, int query0, int seq_q, int warp, int lane) {
  using E = typename T::E;
  const int warp_q = warp % T::C.dq_warps_q;
  const int warp_d = warp / T::C.dq_warps_q;
  float dq[T::kDqFrags][T::kDqTiles][4] = {};
  std::uint32_t bad = 0;
  const std::uint32_t ds_address = shared + T::kDsAt + warp_q * T::kDqFrags * 32 + lane_columns<T::kScoreRow>(lane);
  const std::uint32_t k_address = shared + warp_d * T::kDqTiles * 16 + lane_rows<T::kRow>(lane);
#pragma unroll
  for (int k = 0; k < T::kRows / 16; ++k) {
    std::uint32_t a[T::kDqFrags][T::P][4];
#pragma unroll
    for (int m = 0; m < T::kDqFrags; ++m) {
#pragma unroll
      for (int p = 0; p < T::P; ++p) {
        ldmatrix_x4_trans(a[m][p], ds_address + p * T::kScorePlane + k * 16 * T::kScoreRow + m * 32);
      }
    }
    step_nn<E, T::kRow, T::P, kMasked>(dq, a, k_address + k * 16 * T::kRow, T::kKvPlane, bad);
  }
#pragma unroll
  for (int m = 0; m < T::kDqFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = query0 + (warp_q * T::kDqFrags + m) * 16 + h * 8 + lane / 4;
      if (row >= seq_q) continue;
      float* target = dq_sum + static_cast<std::int64_t>(row) * T::D + warp_d * T::kDqTiles * 8 + (lane & 3) * 2;
#pragma unroll
      for (int n = 0; n < T::kDqTiles; ++n) add_to_global(target + n * 8, dq[m][n][2 * h], dq[m][n][2 * h + 1]);
    }
  }
}

/// One query tile for one warp. `stage`: byte offset of its Q and dO in shared memory; `head_row`: the first row of its
/// head, over all heads.
template <typename T, bool kMasked>
__device__ __forceinline__ void query_tile_step(BwdKvState<T>& state, const BwdParams& params, char* shared,
                                                std::uint32_t stage, std::uint32_t stats_at, std::int64_t head_row,
                                                int query0, int key, float* dq_sum, int warp, int lane) {
  using E = typename T::E;
  const std::uint32_t base = shared_address(shared);
  const int warp_kv = warp % T::C.warps_kv;
  const int warp_d = warp / T::C.warps_kv;
  const std::uint32_t k_address = base + warp_kv * 16 * T::kFrags * T::kRow + lane_rows<T::kRow>(lane);
  const float2* stats = reinterpret_cast<const float2*>(shared + stats_at);
  const float2* saved = any_far<T::P, T::kQueries>(stats, lane) ? params.saved + head_row : nullptr;
  const std::uint32_t q_nn = base + stage + warp_d * T::kColumns * 2 + lane_rows<T::kRow>(lane);
  const std::uint32_t do_nn = q_nn + T::P * T::kQPlane;
  char* ds_rows = shared + T::kDsAt + (warp_kv * 16 * T::kFrags + lane / 4) * T::kScoreRow + (lane & 3) * 4;
  std::uint32_t bad = 0;
  std::uint32_t ignored = 0;
#pragma unroll 1
  for (int sub = T::kExchange ? warp_d * T::C.query_sub : 0; sub < T::kQueries;
       sub += T::kExchange ? T::kQueries : T::C.query_sub) {
    float p[T::kFrags][T::kSubTiles][4];
    float ds[T::kFrags][T::kSubTiles][4];
    scores_step<T, kMasked>(p, ds, params.shape, k_address, base + stage + sub * T::kRow + lane_columns<T::kRow>(lane),
                            stats + sub, saved, query0 + sub, key, lane);
    if (T::kExchange || dq_sum != nullptr) store_scores<T>(ds_rows + sub * 2, ds);
    if constexpr (T::kExchange) {
      store_scores<T>(ds_rows + (T::kPAt - T::kDsAt) + sub * 2, p);
    } else {
#pragma unroll
      for (int k = 0; k < T::kSubTiles / 2; ++k) {
        std::uint32_t a[T::kFrags][T::P][4];
#pragma unroll
        for (int m = 0; m < T::kFrags; ++m) as_a<E, T::P>(a[m], p[m][2 * k], p[m][2 * k + 1]);
        step_nn<E, T::kRow, T::P, kMasked>(state.dv, a, do_nn + (sub + k * 16) * T::kRow, T::kQPlane, bad);
#pragma unroll
        for (int m = 0; m < T::kFrags; ++m) as_a<E, T::P>(a[m], ds[m][2 * k], ds[m][2 * k + 1]);
        step_nn<E, T::kRow, T::P, kMasked>(state.dk, a, q_nn + (sub + k * 16) * T::kRow, T::kQPlane, ignored);
      }
    }
  }
  if (T::kExchange || dq_sum != nullptr) __syncthreads();
  if constexpr (T::kExchange) {
    const std::uint32_t a_address =
        base + T::kDsAt + warp_kv * 16 * T::kFrags * T::kScoreRow + lane_rows<T::kScoreRow>(lane);
#pragma unroll
    for (int k = 0; k < T::kQueries / 16; ++k) {
      std::uint32_t a[T::kFrags][T::P][4];
      load_a<T::kScoreRow, T::P, T::kFrags>(a, a_address + (T::kPAt - T::kDsAt) + k * 32, T::kScorePlane);
      step_nn<E, T::kRow, T::P, kMasked>(state.dv, a, do_nn + k * 16 * T::kRow, T::kQPlane, bad);
      load_a<T::kScoreRow, T::P, T::kFrags>(a, a_address + k * 32, T::kScorePlane);
      step_nn<E, T::kRow, T::P, kMasked>(state.dk, a, q_nn + k * 16 * T::kRow, T::kQPlane, ignored);
    }
  }
  if constexpr (kMasked) {
    // A NaN in q or k has already made dS NaN wherever it is seen; one in dO must still reach dV, column by column.
    if (__any_sync(0xffffffffu, bad != 0)) {
      add_non_finite<E, T::kRow>(state.dv, shared + stage + T::P * T::kQPlane + warp_d * T::kColumns * 2, T::kQueries,
                                 lane, [&](int row, int query) {
                                   const Range range = visible_queries(params.shape, key + row);
                                   return key + row < params.shape.seq_k && query0 + query >= range.begin &&
                                          query0 + query < range.end;
                                 });
    }
  }
  if (dq_sum != nullptr) add_dq<T, kMasked>(dq_sum, base, query0, params.shape.seq_q, warp, lane);
}

/// Stores the warp's rows of one gradient.
template <typename T>
__device__ __forceinline__ void store_gradient(const float (&x)[T::kFrags][T::kOutTiles][4], const Output& out,
                                               const Work& work, const Shape& shape, int row0, int column0, float scale,
                                               int lane) {
  using Out = typename OutputOf<typename T::E, T::P>::Type;
  Out* base = static_cast<Out*>(out.data) + work.batch * out.batch + work.head_in_batch * out.head;
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row0 + m * 16 + h * 8 + lane / 4;
      if (row >= shape.seq_k) continue;
#pragma unroll
      for (int n = 0; n < T::kOutTiles; ++n) {
        store_pair(base + row * out.row, out, column0 + n * 8 + (lane & 3) * 2, shape.head_dim, x[m][n][2 * h] * scale,
                   x[m][n][2 * h + 1] * scale);
      }
    }
  }
}

template <typename T>
__device__ __forceinline__ void clear(BwdKvState<T>& state) {
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int n = 0; n < T::kOutTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state.dk[m][n][i] = state.dv[m][n][i] = 0.0f;
    }
  }
}

/// Starts the copies of one step: Q, dO and the row statistics of a query tile, into `slot` of the stages.
template <typename T>
__device__ __forceinline__ void load_queries(const BwdParams& params, const Work& work, std::uint32_t base, int slot,
                                             int head, int query0, int chunks, int thread) {
  const Shape& shape = params.shape;
  const char* q = head_start(params.q, work.batch, head);
  const char* dout = head_start(params.dout, work.batch, head);
  const float2* stats =
      params.stats + (static_cast<std::int64_t>(work.batch) * shape.heads + head) * shape.seq_q + query0;
  const std::uint32_t target = base + T::kStagesAt + slot * T::kStage;
  load_two_tiles<T::D, T::kQueries, T::kThreads, T::P>(target, q, params.q, target + T::P * T::kQPlane, dout,
                                                       params.dout, query0, shape.seq_q, chunks, thread);
  // Zeros beyond the last query: P = 1 there, but against rows of zeros.
  if (thread < T::kQueries) {
    const bool valid = query0 + thread < shape.seq_q;
    cp_async_8(base + T::kStatsAt + slot * T::kStats + thread * 8, valid ? stats + thread : params.stats, valid);
  }
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::C.blocks_per_sm) flash_backward_kv(const BwdParams params) {
  extern __shared__ __align__(128) char shared[];
  constexpr BwdKvConfig C = T::C;
  const Shape& shape = params.shape;
  const int thread = threadIdx.x;
  const int lane = thread & 31;
  const int warp = thread >> 5;
  const Work work = decode_work(params.order, shape.heads / shape.group);
  const int key0 = work.tile * T::kRows;  // the first keys of a causal problem are seen by the most queries
  const int key_last = min(key0 + T::kRows, shape.seq_k) - 1;
  const Range left = visible_queries(shape, key0);
  const Range right = visible_queries(shape, key_last);
  const int first = left.begin / T::kQueries;
  const int tiles = right.end > left.begin ? (right.end + T::kQueries - 1) / T::kQueries - first : 0;
  const int steps = tiles * shape.group;
  const int chunks = (shape.head_dim + 7) / 8;

  const std::uint32_t base = shared_address(shared);
  const auto load_step = [&](int step) {
    if (step < steps) {
      const int member = shape.group == 1 ? 0 : step / tiles;
      const int query0 = (first + step - member * tiles) * T::kQueries;
      const int head = work.head_in_batch * shape.group + member;
      load_queries<T>(params, work, base, step % C.stages, head, query0, chunks, thread);
    }
    cp_async_commit();
  };
  load_two_tiles<T::D, T::kRows, T::kThreads, T::P>(
      base, head_start(params.k, work.batch, work.head_in_batch), params.k, base + T::kVAt,
      head_start(params.v, work.batch, work.head_in_batch), params.v, key0, shape.seq_k, chunks, thread);
#pragma unroll
  for (int i = 0; i < (C.stages > 1 ? C.stages - 1 : 1); ++i) load_step(i);

  BwdKvState<T> state;
  clear(state);
  const int key = key0 + (warp % C.warps_kv) * 16 * T::kFrags;
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    cp_async_wait<(C.stages > 1 ? C.stages - 2 : 0)>();
    __syncthreads();
    if constexpr (C.stages > 1) load_step(i + C.stages - 1);
    const int member = shape.group == 1 ? 0 : i / tiles;
    const int query0 = (first + i - member * tiles) * T::kQueries;
    const std::uint32_t stage = T::kStagesAt + (i % C.stages) * T::kStage;
    const std::uint32_t stats_at = T::kStatsAt + (i % C.stages) * T::kStats;
    const std::int64_t head =
        static_cast<std::int64_t>(work.batch) * shape.heads + work.head_in_batch * shape.group + member;
    const std::int64_t head_row = head * shape.seq_q;
    float* dq_sum = params.dq_sum != nullptr ? params.dq_sum + head_row * T::D : nullptr;
    // Queries from right.begin on see every key up to the last, those before left.end see the first too.
    if (query0 >= right.begin && min(query0 + T::kQueries, shape.seq_q) <= left.end && key0 + T::kRows <= shape.seq_k) {
      query_tile_step<T, false>(state, params, shared, stage, stats_at, head_row, query0, key, dq_sum, warp, lane);
    } else {
      query_tile_step<T, true>(state, params, shared, stage, stats_at, head_row, query0, key, dq_sum, warp, lane);
    }
    if constexpr (C.stages == 1) {
      __syncthreads();
      load_step(i + 1);
    }
  }
  cp_async_wait<0>();
  const int column0 = (warp / C.warps_kv) * T::kColumns;
  store_gradient<T>(state.dv, params.dv, work, shape, key, column0, 1.0f, lane);
  store_gradient<T>(state.dk, params.dk, work, shape, key, column0, shape.scale, lane);
}

}  // namespace attnbench::kernels::flash_cuda
