// The forward kernel itself: producer and consumer roles, one persistent block per multiprocessor.
//
// Tiles come from a counter in global memory, so that blocks that run faster take more of them. The
// consumers' pipeline runs on across tiles: S of the next tile's first block is issued before the last P V of this one.
#pragma once

#include "kernels/cuda/hopper/forward.cuh"

namespace attnbench::kernels::hopper {

/// Issues every copy of this block. Order: K of a block, then V of the block before it, on across tile borders.
template <typename Shape, int kTileN, int kStages, int kQueryStages>
__device__ inline void produce(const ForwardParams& p, const CUtensorMap* map_q, const CUtensorMap* map_k,
                               const CUtensorMap* map_v, char* query, char* keys, char* values,
                               ForwardBarriers<kStages, kQueryStages>& bar) {
  Ring<kStages> key_ring, value_ring;
  Ring<kQueryStages> query_ring;
  Ring<2> tile_ring;
  int value_block = -1, value_head = 0, value_batch = 0;  // the V that is one block behind
  auto load = [&](const CUtensorMap* map, char* target, std::uint64_t* full, int block, int head, int batch) {
    barrier_expect(full, Shape::kKeyBytes);
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      copy_in(target + c * kTileN * 128, map, full, c * 64, block * kTileN, head, batch);
    }
  };
  auto load_value = [&] {
    if (value_block < 0) return;
    barrier_wait(&bar.value_empty[value_ring.index], value_ring.phase ^ 1);
    load(map_v, values + value_ring.index * Shape::kKeyBytes, &bar.value_full[value_ring.index], value_block,
         value_head, value_batch);
    value_ring.advance();
  };
  int t = static_cast<int>(blockIdx.x);
  for (;;) {
    barrier_wait(&bar.tile_empty[tile_ring.index], tile_ring.phase ^ 1);
    bar.tile[tile_ring.index] = t;
    barrier_arrive(&bar.tile_full[tile_ring.index]);
    tile_ring.advance();
    if (t >= p.tiles) break;
    const int following = static_cast<int>(gridDim.x) + atomicAdd(p.counters, 1);
    const TileIndex tile = tile_at(p, t);
    const int kv_head = tile.head / (p.heads / p.kv_heads);
    barrier_wait(&bar.query_empty[query_ring.index], query_ring.phase ^ 1);
    barrier_expect(&bar.query_full[query_ring.index], Shape::kQueryBytes);
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      copy_in(query + query_ring.index * Shape::kQueryBytes + c * Shape::kTileM * 128, map_q,
              &bar.query_full[query_ring.index], c * 64, tile.m * Shape::kTileM, tile.head, tile.batch);
    }
    query_ring.advance();
    for (int n = (p.seq_k + kTileN - 1) / kTileN - 1; n >= 0; --n) {
      barrier_wait(&bar.key_empty[key_ring.index], key_ring.phase ^ 1);
      load(map_k, keys + key_ring.index * Shape::kKeyBytes, &bar.key_full[key_ring.index], n, kv_head, tile.batch);
      key_ring.advance();
      load_value();
      value_block = n;
      value_head = kv_head;
      value_batch = tile.batch;
    }
    t = following;
  }
  load_value();
  // The last block to finish leaves the counters as it found them.
  if (atomicAdd(p.counters + 1, 1) == static_cast<int>(gridDim.x) - 1) {
    p.counters[0] = 0;
    p.counters[1] = 0;
  }
}

/// Exchanges registers inside a quad: lane q gets group q of every lane, so that it owns 16 contiguous bytes.
__device__ inline void transpose_quad(std::uint32_t (&a)[4]) {
  const bool odd = (threadIdx.x & 1) != 0;
  const bool high = (threadIdx.x & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? a[i] : a[i + 1], 1);
    (odd ? a[i] : a[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, high ? a[i] : a[i + 2], 2);
    (high ? a[i] : a[i + 2]) = got;
  }
}

/// Normalises O and writes it and lse. Each lane of a quad ends up with eight neighbouring columns of its row.
template <typename T, int kHeadDim>
__device__ inline void finish(const ForwardParams& p, const float (&o)[kHeadDim / 2], const RowState& state,
                              const TileIndex& tile, int row) {
  const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = state.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const float inverse = sum == 0.f ? 0.f : 1.f / sum;
    const int r = row + 8 * half;
    const bool inside = r < p.seq_q;
    if (quad == 0 && inside) {
      const long long index = (static_cast<long long>(tile.batch) * p.heads + tile.head) * p.seq_q + r;
      p.lse[index] = sum == 0.f ? -INFINITY : state.max[half] * p.scale + logf(sum);
    }
    T* out = static_cast<T*>(p.out) + tile.batch * p.out_stride_b + tile.head * p.out_stride_h + r * p.out_stride_s;
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; j += 4) {
      std::uint32_t a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i] = pack<T>(o[4 * (j + i) + 2 * half] * inverse, o[4 * (j + i) + 2 * half + 1] * inverse);
      }
      transpose_quad(a);
      if (inside) *reinterpret_cast<uint4*>(out + 8 * (j + quad)) = make_uint4(a[0], a[1], a[2], a[3]);
    }
  }
}

/// One consumer warpgroup: its accumulators, its place in every ring, and the steps of its pipeline.
template <typename T, int kHeadDim, int kConsumers, int kTileN, int kStages, int kQueryStages>
struct Consumer {
  using Shape = ForwardShape<kHeadDim, kConsumers, kTileN, kStages, kQueryStages>;
  using Barriers = ForwardBarriers<kStages, kQueryStages>;

  const ForwardParams& p;
  const char* query;
  const char* keys;
  const char* values;
  Barriers& bar;
  int group;
  int thread;
  Ring<kStages> key_ring, value_ring;
  Ring<kQueryStages> query_ring;
  Ring<2> tile_ring;
  float o[kHeadDim / 2];
  float s[kTileN / 2];
  std::uint32_t probabilities[kTileN / 4];
  float alpha[2];

  /// The next tile of this block, false when there is none.
  __device__ bool fetch(TileIndex& tile) {
    barrier_wait(&bar.tile_full[tile_ring.index], tile_ring.phase);
    const int t = bar.tile[tile_ring.index];
    barrier_arrive(&bar.tile_empty[tile_ring.index]);
    tile_ring.advance();
    if (t < p.tiles) tile = tile_at(p, t);
    return t < p.tiles;
  }

  /// The thread's first fragment row; the other one is eight below.
  __device__ int row_of(const TileIndex& tile) const {
    return tile.m * Shape::kTileM + group * 64 + thread / 32 * 16 + thread % 32 / 4;
  }

  /// Waits for K (and Q at the first block of a tile) and issues S = Q K^T.
  __device__ void issue_scores(bool first_of_tile) {
    if (first_of_tile) barrier_wait(&bar.query_full[query_ring.index], query_ring.phase);
    barrier_wait(&bar.key_full[key_ring.index], key_ring.phase);
    products_fence();
    score_product<T, kHeadDim, Shape::kTileM, kTileN>(
        s, query + query_ring.index * Shape::kQueryBytes + group * 64 * 128, keys + key_ring.index * Shape::kKeyBytes);
    products_commit();
  }

  __device__ void issue_values(int accumulate) {
    barrier_wait(&bar.value_full[value_ring.index], value_ring.phase);
    products_fence();
    value_product<T, kHeadDim, kTileN>(o, probabilities, values + value_ring.index * Shape::kKeyBytes, accumulate);
    products_commit();
  }

  __device__ void release_key(bool last_of_tile) {
    if (thread == 0) barrier_arrive(&bar.key_empty[key_ring.index]);
    key_ring.advance();
    if (!last_of_tile) return;
    if (thread == 0) barrier_arrive(&bar.query_empty[query_ring.index]);
    query_ring.advance();
  }

  __device__ void release_value() {
    if (thread == 0) barrier_arrive(&bar.value_empty[value_ring.index]);
    value_ring.advance();
  }

  /// S of block n is complete: P in place of it.
  __device__ void soften(int n, RowState& rows) {
    pin(s);
    release_key(n == 0);
    if ((n + 1) * kTileN > p.seq_k) mask_tail<kTileN>(s, p.seq_k, n * kTileN + 2 * (thread % 4));
    softmax_step<kTileN>(s, rows, alpha, p.scale_log2);
  }

  /// S of block n beside P V of the block before it, wherever that one was.
  __device__ void step(int n, bool first_of_tile, int accumulate, RowState& rows) {
    issue_scores(first_of_tile);
    issue_values(accumulate);
    products_wait<1>();
    soften(n, rows);
    products_wait<0>();
    pin(o);
    release_value();
  }

  __device__ void run() {
    const int last = (p.seq_k + kTileN - 1) / kTileN - 1;
    RowState state;
    TileIndex tile;
    if (!fetch(tile)) return;
    issue_scores(true);
    products_wait<0>();
    soften(last, state);
    pack_probabilities<T, kTileN>(s, probabilities);
    for (;;) {
      int accumulate = 0;
      for (int n = last - 1; n >= 0; --n) {
        step(n, false, accumulate, state);
        pack_probabilities<T, kTileN>(s, probabilities);
        rescale<kHeadDim>(o, alpha);
        accumulate = 1;
      }
      TileIndex next;
      if (!fetch(next)) break;
      RowState fresh;
      step(last, true, accumulate, fresh);
      finish<T, kHeadDim>(p, o, state, tile, row_of(tile));
      pack_probabilities<T, kTileN>(s, probabilities);
      state = fresh;
      tile = next;
    }
    // The last P V of the last tile; a tile of one block has nothing to add to.
    issue_values(last > 0 ? 1 : 0);
    products_wait<0>();
    pin(o);
    finish<T, kHeadDim>(p, o, state, tile, row_of(tile));
  }
};

template <typename T, int kHeadDim, int kConsumers, int kTileN, int kStages, int kQueryStages>
__global__ void __launch_bounds__(128 * (kConsumers + 1), 1)
    forward_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                   const __grid_constant__ CUtensorMap map_v, const ForwardParams p) {
  using Shape = ForwardShape<kHeadDim, kConsumers, kTileN, kStages, kQueryStages>;
  extern __shared__ char raw[];
  char* query = raw + ((1024 - (shared_address(raw) & 1023)) & 1023);
  char* keys = query + kQueryStages * Shape::kQueryBytes;
  char* values = keys + kStages * Shape::kKeyBytes;
  __shared__ ForwardBarriers<kStages, kQueryStages> bar;
  if (threadIdx.x == 0) {
    prefetch_map(&map_q);
    prefetch_map(&map_k);
    prefetch_map(&map_v);
    for (int i = 0; i < kQueryStages; ++i) {
      barrier_init(&bar.query_full[i], 1);
      barrier_init(&bar.query_empty[i], kConsumers);
    }
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&bar.key_full[i], 1);
      barrier_init(&bar.value_full[i], 1);
      barrier_init(&bar.key_empty[i], kConsumers);
      barrier_init(&bar.value_empty[i], kConsumers);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(&bar.tile_full[i], 1);
      barrier_init(&bar.tile_empty[i], 128 * kConsumers);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    give_registers<(kConsumers == 3 ? 32 : 24)>();
    if (threadIdx.x == 0) {
      produce<Shape, kTileN, kStages, kQueryStages>(p, &map_q, &map_k, &map_v, query, keys, values, bar);
    }
  } else {
    take_registers<(kConsumers == 3 ? 160 : 240)>();
    Consumer<T, kHeadDim, kConsumers, kTileN, kStages, kQueryStages> consumer{
        p, query, keys, values, bar, warpgroup - 1, static_cast<int>(threadIdx.x) % 128, {}, {}, {}, {}};
    consumer.run();
  }
}

}  // namespace attnbench::kernels::hopper
