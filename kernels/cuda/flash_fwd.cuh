// Forward: one block per query tile, keys and values streamed once, softmax kept in running form.
//
// Per row: m the largest score so far, base = m c (c = |scale| log2 e), l the sum of p = 2^(s c - base)
// (flash_softmax.cuh says what happens to huge ones). A larger m scales what is there by 2^(base_old - base_new). A row
// that sees no key keeps m = -inf, l = 0 and ends as o = 0, lse = -inf.
//
// Source: Milakov & Gimelshein 2018, section 3 (online softmax); Dao et al. 2022, algorithm 1; Dao 2023, section 3.
#pragma once

#include "kernels/cuda/flash_softmax.cuh"

namespace attnbench::kernels::flash_cuda {

/// Everything of the forward that follows from element, width and tile shape.
template <typename E_, int D_, int P_, FwdConfig C_>
struct FwdTile {
  using E = E_;
  static constexpr int D = D_;
  static constexpr int P = P_;
  static constexpr FwdConfig C = C_;
  static constexpr int kFrags = C.frags_m;
  static constexpr int kRows = C.rows();  // queries per block
  static constexpr int kKeys = C.step();  // keys per step, all warp groups together
  static constexpr int kThreads = C.threads();
  static constexpr int kKeyTiles = C.key_tile / 8;  // C tiles of scores along the keys
  static constexpr int kOutTiles = D / 8;           // C tiles of the output along the columns
  static constexpr int kSteps = D / 16;
  static constexpr int kRow = row_bytes(D);
  static constexpr std::uint32_t kQPlane = C.rows() * kRow;
  static constexpr std::uint32_t kKvPlane = C.step() * kRow;
  static constexpr std::uint32_t kKvTile = P * kKvPlane;
  static constexpr std::uint32_t kStage = 2 * kKvTile;
};

/// The running softmax and output of a warp's rows. Index h of a row: h = 0 row g, h = 1 row g + 8 of the fragment.
template <typename T>
struct FwdState {
  float out[T::kFrags][T::kOutTiles][4];
  float largest[T::kFrags][2];
  float base[T::kFrags][2];
  float sum[T::kFrags][2];
  bool far;  // some row of the warp may be; the same in all lanes
  std::uint32_t q[T::C.q_in_registers ? T::kSteps : 1][T::kFrags][T::P][4];
};

/// No key seen yet.
template <typename T>
__device__ __forceinline__ void clear(FwdState<T>& state) {
  state.far = false;
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      state.largest[m][h] = -INFINITY;
      state.base[m][h] = 0.0f;
      state.sum[m][h] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < T::kOutTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state.out[m][n][i] = 0.0f;
    }
  }
}

/// Moves the warp's queries from shared memory to registers.
template <typename T>
__device__ __forceinline__ void keep_queries(FwdState<T>& state, std::uint32_t q_address) {
#pragma unroll
  for (int s = 0; s < T::kSteps; ++s) load_a<T::kRow, T::P, T::kFrags>(state.q[s], q_address + s * 32, T::kQPlane);
}

/// Sums of whole rows: every lane of a quad has summed its own columns.
template <typename T>
__device__ __forceinline__ void add_lanes(FwdState<T>& state) {
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      state.sum[m][h] += __shfl_xor_sync(0xffffffffu, state.sum[m][h], 1);
      state.sum[m][h] += __shfl_xor_sync(0xffffffffu, state.sum[m][h], 2);
    }
  }
}

/// The keys of a tile that a row sees, counted from the lane's first column on, and whether there are any.
struct Seen {
  int begin;
  int end;
  bool some;
};

/// For the rows of a lane; all of the tile where nothing is masked. `row` is the lane's first, `key` the tile's.
template <typename T, bool kMasked>
__device__ __forceinline__ void find_seen(Seen (&seen)[T::kFrags][2], const Shape& shape, int row, int key, int lane) {
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      seen[m][h] = {0, T::C.key_tile, true};
      if constexpr (kMasked) {
        const Range range = visible_keys(shape, row + m * 16 + h * 8);
        const int first = key + (lane & 3) * 2;
        const bool some = range.begin < range.end && range.begin < key + T::C.key_tile && range.end > key;
        seen[m][h] = {range.begin - first, range.end - first, some};
      }
    }
  }
}

/// Largest score of each row of the tile, in all lanes of the row; NaN is left out.
template <typename T>
__device__ __forceinline__ void row_maxima(float (&x)[T::kFrags][2], const float (&s)[T::kFrags][T::kKeyTiles][4]) {
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < T::kKeyTiles; ++n) most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      x[m][h] = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    }
  }
}

/// Makes `next` the largest of each row and scales sums and outputs to it. kFar: some row is far, before or after.
template <typename T, bool kFar>
__device__ __forceinline__ void raise_maxima(FwdState<T>& state, const float (&next)[T::kFrags][2], float c) {
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float old = state.largest[m][h];
      const float old_base = state.base[m][h];
      const float base = next[m][h] == -INFINITY ? 0.0f : next[m][h] * c;
      const float step = kFar ? rebase(old, old_base, next[m][h], base, c) : old_base - base;
      const float factor = old == -INFINITY ? 0.0f : (next[m][h] > old ? ex2(step) : 1.0f);
      state.largest[m][h] = next[m][h];
      state.base[m][h] = base;
      state.sum[m][h] *= factor;
#pragma unroll
      for (int n = 0; n < T::kOutTiles; ++n) {
        state.out[m][n][2 * h] *= factor;
        state.out[m][n][2 * h + 1] *= factor;
      }
    }
  }
}

/// raise_maxima for huge scores, which turns them into base-2 logarithms of weights in place. -inf is a score that
/// overflowed where a row sees the key, elsewhere the mask.
template <typename T>
__device__ __forceinline__ void far_log2_weights(FwdState<T>& state, float (&s)[T::kFrags][T::kKeyTiles][4],
                                                 float (&next)[T::kFrags][2], const Seen (&seen)[T::kFrags][2],
                                                 float c) {
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      next[m][h] = not_above(next[m][h]);
      if (seen[m][h].some) next[m][h] = not_below(next[m][h]);
    }
  }
  raise_maxima<T, true>(state, next, c);
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float base = state.base[m][h];
#pragma unroll
      for (int n = 0; n < T::kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float x = not_above(s[m][n][2 * h + i]);
          if (n * 8 + i >= seen[m][h].begin && n * 8 + i < seen[m][h].end) x = not_below(x);
          s[m][n][2 * h + i] = is_far(base) ? (x - state.largest[m][h]) * c : fmaf(x, c, -base);
        }
      }
    }
  }
}

/// Turns scores into weights in place and brings the running state up to date. `next`: the maxima of the tile; `seen`
/// as for far_log2_weights.
template <typename T>
__device__ __forceinline__ void softmax_step(FwdState<T>& state, float (&s)[T::kFrags][T::kKeyTiles][4],
                                             float (&next)[T::kFrags][2], const Seen (&seen)[T::kFrags][2], float c) {
  bool grew = false;
  bool odd = false;
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      next[m][h] = fmaxf(state.largest[m][h], next[m][h]);
      grew = grew || next[m][h] > state.largest[m][h];
      odd = odd || (is_far(next[m][h] * c) && (next[m][h] > -INFINITY || seen[m][h].some));
    }
  }
  const bool far = __any_sync(0xffffffffu, odd);
  float factor = c;
  float base[T::kFrags][2];
  if (__builtin_expect(far || state.far, 0)) {
    far_log2_weights<T>(state, s, next, seen, c);
    factor = 1.0f;
  } else if (__any_sync(0xffffffffu, grew)) {
    raise_maxima<T, false>(state, next, c);
  }
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) base[m][h] = far || state.far ? 0.0f : state.base[m][h];
  }
  state.far = far;
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = 0.0f;
#pragma unroll
      for (int n = 0; n < T::kKeyTiles; ++n) {
        s[m][n][2 * h] = ex2(fmaf(s[m][n][2 * h], factor, -base[m][h]));
        s[m][n][2 * h + 1] = ex2(fmaf(s[m][n][2 * h + 1], factor, -base[m][h]));
        total += s[m][n][2 * h] + s[m][n][2 * h + 1];
      }
      state.sum[m][h] += total;
    }
  }
}

/// One key tile for one warp: scores, softmax, output. `q_row` is the warp's first query, `key` the tile's first key;
/// addresses include the lane's offsets, `v_tile` is the same tile as a pointer.
template <typename T, bool kMasked>
__device__ __forceinline__ void key_tile_step(FwdState<T>& state, const Shape& shape, std::uint32_t q_address,
                                              std::uint32_t k_address, std::uint32_t v_address, const char* v_tile,
                                              int q_row, int key, int lane) {
  using E = typename T::E;
  float s[T::kFrags][T::kKeyTiles][4] = {};
#pragma unroll
  for (int k = 0; k < T::kSteps; ++k) {
    if constexpr (T::C.q_in_registers) {
      step_nt<E, T::kRow, T::P>(s, state.q[k], k_address + k * 32, T::kKvPlane);
    } else {
      std::uint32_t q[T::kFrags][T::P][4];
      load_a<T::kRow, T::P, T::kFrags>(q, q_address + k * 32, T::kQPlane);
      step_nt<E, T::kRow, T::P>(s, q, k_address + k * 32, T::kKvPlane);
    }
  }
  if (shape.negative) {
#pragma unroll
    for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
      for (int n = 0; n < T::kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[m][n][i] = -s[m][n][i];
      }
    }
  }
  Seen seen[T::kFrags][2];
  find_seen<T, kMasked>(seen, shape, q_row + lane / 4, key, lane);
  if constexpr (kMasked) {
#pragma unroll
    for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
      for (int n = 0; n < T::kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = n * 8 + (i & 1);
          if (column < seen[m][i / 2].begin || column >= seen[m][i / 2].end) s[m][n][i] = -INFINITY;
        }
      }
    }
  }
  float largest[T::kFrags][2];
  row_maxima<T>(largest, s);
  softmax_step<T>(state, s, largest, seen, shape.scale_log2);
  std::uint32_t bad = 0;
#pragma unroll
  for (int k = 0; k < T::kKeyTiles / 2; ++k) {
    std::uint32_t p[T::kFrags][T::P][4];
#pragma unroll
    for (int m = 0; m < T::kFrags; ++m) as_a<E, T::P>(p[m], s[m][2 * k], s[m][2 * k + 1]);
    step_nn<E, T::kRow, T::P, kMasked>(state.out, p, v_address + k * 16 * T::kRow, T::kKvPlane, bad);
  }
  if constexpr (kMasked) {
    if (__any_sync(0xffffffffu, bad != 0)) {
      add_non_finite<E, T::kRow>(state.out, v_tile, T::C.key_tile, lane, [&](int row, int k) {
        const Range range = visible_keys(shape, q_row + row);
        return key + k >= range.begin && key + k < range.end;
      });
    }
  }
}

/// Merges the states of the warp groups into group 0, through shared memory (one slot per lane and register).
template <typename T>
__device__ __forceinline__ void merge_groups(FwdState<T>& state, float* slots, int warp, int lane, float c) {
  constexpr int kThreads = T::C.warps_m * 32;
  constexpr int kSlots = T::kFrags * 2 * (3 + T::kOutTiles * 2);
  const int group = warp / T::C.warps_m;
  slots += (warp % T::C.warps_m) * 32 + lane;
  __syncthreads();  // the last tiles have been read
  if (group > 0) {
    float* mine = slots + (group - 1) * kSlots * kThreads;
    int slot = 0;
#pragma unroll
    for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        mine[slot++ * kThreads] = state.largest[m][h];
        mine[slot++ * kThreads] = state.base[m][h];
        mine[slot++ * kThreads] = state.sum[m][h];
#pragma unroll
        for (int n = 0; n < T::kOutTiles; ++n) {
          mine[slot++ * kThreads] = state.out[m][n][2 * h];
          mine[slot++ * kThreads] = state.out[m][n][2 * h + 1];
        }
      }
    }
  }
  __syncthreads();
  if (group > 0) return;
#pragma unroll
  for (int other = 1; other < T::C.split; ++other) {
    const float* theirs = slots + (other - 1) * kSlots * kThreads;
    int slot = 0;
#pragma unroll
    for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float mine = state.largest[m][h];
        const float mine_base = state.base[m][h];
        const float largest = theirs[slot++ * kThreads];
        const float base = theirs[slot++ * kThreads];
        const float sum = theirs[slot++ * kThreads];
        const float top = fmaxf(mine, largest);
        const float top_base = largest > mine ? base : mine_base;
        // Of two states at most one is scaled; an empty one (-inf) counts nothing.
        const float keep = mine == -INFINITY ? 0.0f : ex2(rebase(mine, mine_base, top, top_base, c));
        const float add = largest == -INFINITY ? 0.0f : ex2(rebase(largest, base, top, top_base, c));
        state.largest[m][h] = top;
        state.base[m][h] = top_base;
        state.sum[m][h] = state.sum[m][h] * keep + sum * add;
#pragma unroll
        for (int n = 0; n < T::kOutTiles; ++n) {
          state.out[m][n][2 * h] = state.out[m][n][2 * h] * keep + theirs[slot++ * kThreads] * add;
          state.out[m][n][2 * h + 1] = state.out[m][n][2 * h + 1] * keep + theirs[slot++ * kThreads] * add;
        }
      }
    }
  }
}

/// Divides by the row sums and stores o, lse and what the backward needs of a row: its largest score and log2 of its
/// sum (0 and +inf where it sees no key), since the lse of large logits is too coarse to make weights from.
template <typename T>
__device__ __forceinline__ void store_forward(FwdState<T>& state, const FwdParams& params, const Work& work, int q_row,
                                              int lane) {
  using Out = typename OutputOf<typename T::E, T::P>::Type;
  Out* out = static_cast<Out*>(params.o.data) + work.batch * params.o.batch + work.head_in_batch * params.o.head;
  float* lse = params.lse + work.head * params.shape.seq_q;
#pragma unroll
  for (int m = 0; m < T::kFrags; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = q_row + m * 16 + h * 8 + lane / 4;
      if (row >= params.shape.seq_q) continue;
      const float sum = state.sum[m][h];
      const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
      if ((lane & 3) == 0) {
        lse[row] = natural_lse(state.largest[m][h], state.base[m][h], sum);
        if (params.saved != nullptr) {
          params.saved[work.head * params.shape.seq_q + row] =
              sum == 0.0f ? make_float2(0.0f, INFINITY) : make_float2(state.largest[m][h], log2f(sum));
        }
      }
#pragma unroll
      for (int n = 0; n < T::kOutTiles; ++n) {
        store_pair(out + row * params.o.row, params.o, n * 8 + (lane & 3) * 2, params.shape.head_dim,
                   state.out[m][n][2 * h] * inverse, state.out[m][n][2 * h + 1] * inverse);
      }
    }
  }
}

/// The keys that some row of the warp sees: where groups of warps share a step, one of them may have none of it.
template <typename T>
__device__ __forceinline__ Range warp_keys(const Shape& shape, int q_row) {
  const int last = min(q_row + 16 * T::C.frags_m, shape.seq_q) - 1;
  if (last < q_row) return {0, 0};
  return {visible_keys(shape, q_row).begin, visible_keys(shape, last).end};
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::C.blocks_per_sm) flash_forward(const FwdParams params) {
  extern __shared__ __align__(128) char shared[];
  constexpr FwdConfig C = T::C;
  const Shape& shape = params.shape;
  const int thread = threadIdx.x;
  const int lane = thread & 31;
  const int warp = thread >> 5;
  const int group = warp / C.warps_m;
  Work work = decode_work(params.order, shape.heads);
  const int row0 = (params.order.tiles - 1 - work.tile) * T::kRows;
  const int row_last = min(row0 + T::kRows, shape.seq_q) - 1;
  const int q_row = row0 + (warp % C.warps_m) * 16 * C.frags_m;
  const auto [top, bottom, first, count] = key_tiles<T::kKeys>(shape, row0, row_last);
  const int chunks = (shape.head_dim + 7) / 8;
  const int kv_head = work.head_in_batch / shape.group;
  const char* q = head_start(params.q, work.batch, work.head_in_batch);
  const char* k = head_start(params.k, work.batch, kv_head);
  const char* v = head_start(params.v, work.batch, kv_head);

  const std::uint32_t q_tile = shared_address(shared);
  const std::uint32_t kv_tiles = q_tile + T::P * T::kQPlane;
  // Tiles run from the right: the masked ones of a causal problem come first. Step i works on tile count - 1 - i.
  const auto load_step = [&](int step) {
    if (step < count) {
      const std::uint32_t target = kv_tiles + (step % C.stages) * T::kStage;
      const int key0 = (first + count - 1 - step) * T::kKeys;
      load_two_tiles<T::D, T::kKeys, T::kThreads, T::P>(target, k, params.k, target + T::kKvTile, v, params.v, key0,
                                                        shape.seq_k, chunks, thread);
    }
    cp_async_commit();
  };
  load_tile<T::D, T::kRows, T::kThreads, T::P>(q_tile, q, params.q.row * 2, params.q.plane * 2, row0, shape.seq_q,
                                               chunks, thread);
#pragma unroll
  for (int i = 0; i < C.stages - 1; ++i) load_step(i);

  FwdState<T> state;
  clear(state);
  const std::uint32_t q_address = q_tile + (warp % C.warps_m) * 16 * C.frags_m * T::kRow + lane_rows<T::kRow>(lane);
  const Range mine = warp_keys<T>(shape, q_row);
  const std::uint32_t k_offset = group * C.key_tile * T::kRow + lane_columns<T::kRow>(lane);
  const std::uint32_t v_offset = T::kKvTile + group * C.key_tile * T::kRow;
  for (int i = 0; i < count; ++i) {
    cp_async_wait<C.stages - 2>();
    __syncthreads();
    load_step(i + C.stages - 1);
    if constexpr (C.q_in_registers) {
      if (i == 0) keep_queries(state, q_address);
    }
    const std::uint32_t stage = (i % C.stages) * T::kStage;
    const int key = (first + count - 1 - i) * T::kKeys + group * C.key_tile;
    const std::uint32_t k_address = kv_tiles + stage + k_offset;
    const std::uint32_t v_address = kv_tiles + stage + v_offset + lane_rows<T::kRow>(lane);
    if (key >= mine.end || key + C.key_tile <= mine.begin) continue;
    if (key >= bottom.begin && key + C.key_tile <= top.end) {
      key_tile_step<T, false>(state, shape, q_address, k_address, v_address, nullptr, q_row, key, lane);
    } else {
      key_tile_step<T, true>(state, shape, q_address, k_address, v_address,
                             shared + T::P * T::kQPlane + stage + v_offset, q_row, key, lane);
    }
  }
  cp_async_wait<0>();
  add_lanes(state);
  if constexpr (C.split > 1) {
    merge_groups<T>(state, reinterpret_cast<float*>(shared), warp, lane, shape.scale_log2);
    if (group > 0) return;
  }
  store_forward<T>(state, params, work, q_row, lane);
}

}  // namespace attnbench::kernels::flash_cuda
