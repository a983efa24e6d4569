// The forward kernel itself: producer and consumer roles, one persistent block per multiprocessor.
//
// Tiles come from a counter in global memory, longest first, so that unequal (causal) tiles balance themselves. The
// consumers' pipeline runs on across tiles: S of the next tile's first block is issued before the last P V of this one.
#pragma once

#include "kernels/cuda/hopper/forward_finish.cuh"

namespace attnbench::kernels::hopper {

/// What the producers and the consumers share: where tiles and stages lie and when they are full or empty.
template <typename Shape>
struct Channel {
  const ForwardParams& p;
  std::uint32_t base;
  ForwardBarriers<Shape::kStages, Shape::kQueryStages>& bar;
};

/// Copies `kRows` rows of a tensor into a stage.
template <typename Shape, int kRows>
__device__ inline void load(const CUtensorMap* map, std::uint32_t target, std::uint32_t full, int row, int head,
                            int batch) {
  barrier_expect(full, kRows * Shape::kChunks * Shape::kRowBytes);
#pragma unroll
  for (int c = 0; c < Shape::kChunks; ++c) {
    copy_in(target + c * kRows * Shape::kRowBytes, map, full, c * Shape::kColumns, row, head, batch);
  }
}

/// One thread: hands out tiles, copies Q and K.
template <typename Shape>
__device__ inline void produce_keys(const Channel<Shape>& c, const CUtensorMap* map_q, const CUtensorMap* map_k) {
  Ring<Shape::kStages> ring;
  Ring<Shape::kQueryStages> query_ring;
  Ring<2> tile_ring;
  int t = static_cast<int>(blockIdx.x);
  for (;;) {
    Tile tile = t < c.p.tiles ? tile_at(c.p, t) : Tile{-1, 0, {0, 0}};
    const int first = tile.m * Shape::kTileM;
    tile.blocks = key_blocks<Shape::kTileN>(c.p, first, min(c.p.seq_q, first + Shape::kTileM));
    barrier_wait(at(c.bar.tile_empty, tile_ring.index()), tile_ring.phase() ^ 1);
    c.bar.tile[tile_ring.index()] = tile;
    barrier_arrive(at(c.bar.tile_full, tile_ring.index()));
    tile_ring.advance();
    if (tile.m < 0) break;
    t = static_cast<int>(gridDim.x) + atomicAdd(c.p.counters, 1);
    const int batch = c.p.heads.quotient(tile.head), head = tile.head - batch * c.p.heads.divisor;
    if (tile.blocks.end <= tile.blocks.begin) continue;
    barrier_wait(at(c.bar.query_empty, query_ring.index()), query_ring.phase() ^ 1);
    load<Shape, Shape::kTileM>(map_q, c.base + query_ring.index() * Shape::kQueryBytes,
                               at(c.bar.query_full, query_ring.index()), first, head, batch);
    query_ring.advance();
    const int kv_head = c.p.group.quotient(head);
#pragma unroll 1
    for (int n = tile.blocks.end - 1; n >= tile.blocks.begin; --n) {
      barrier_wait(at(c.bar.key_empty, ring.index()), ring.phase() ^ 1);
      load<Shape, Shape::kTileN>(map_k, c.base + Shape::kKeysAt + ring.index() * Shape::kKeyBytes,
                                 at(c.bar.key_full, ring.index()), n * Shape::kTileN, kv_head, batch);
      ring.advance();
    }
  }
  // The last block to finish leaves the counters as it found them.
  if (atomicAdd(c.p.counters + 1, 1) == static_cast<int>(gridDim.x) - 1) {
    c.p.counters[0] = 0;
    c.p.counters[1] = 0;
  }
}

/// Another thread: copies V of the same tiles.
template <typename Shape>
__device__ inline void produce_values(const Channel<Shape>& c, const CUtensorMap* map_v) {
  Ring<Shape::kStages> ring;
  Ring<2> tile_ring;
  for (;;) {
    barrier_wait(at(c.bar.tile_full, tile_ring.index()), tile_ring.phase());
    const Tile tile = c.bar.tile[tile_ring.index()];
    barrier_arrive(at(c.bar.tile_empty, tile_ring.index()));
    tile_ring.advance();
    if (tile.m < 0) return;
    const int batch = c.p.heads.quotient(tile.head);
    const int kv_head = c.p.group.quotient(tile.head - batch * c.p.heads.divisor);
#pragma unroll 1
    for (int n = tile.blocks.end - 1; n >= tile.blocks.begin; --n) {
      barrier_wait(at(c.bar.value_empty, ring.index()), ring.phase() ^ 1);
      load<Shape, Shape::kTileN>(map_v, c.base + Shape::kValuesAt + ring.index() * Shape::kKeyBytes,
                                 at(c.bar.value_full, ring.index()), n * Shape::kTileN, kv_head, batch);
      ring.advance();
    }
  }
}

/// A consumer warpgroup's part of a tile: blocks [begin, end), and how many that others read it passes over around
/// them.
struct Work {
  int m, head;
  int begin, end, early, late;
};

/// One consumer warpgroup: its accumulators, its place in every ring, and the steps of its pipeline. kMasked: rows may
/// see only part of the keys.
template <typename T, typename Shape, bool kMasked>
struct Consumer {
  static constexpr int kHeadDim = Shape::kHeadDim, kTileN = Shape::kTileN;

  const ForwardParams& p;
  const Channel<Shape>& channel;
  const CUtensorMap* map_o;
  int group;
  int thread;
  Ring<Shape::kStages> key_ring, value_ring;
  Ring<Shape::kQueryStages> query_ring;
  Ring<2> tile_ring;
  float o[kHeadDim / 2];
  float s[kTileN / 2];
  std::uint32_t probabilities[kTileN / 4];
  float alpha[2];

  __device__ int first_row(const Work& work) const { return work.m * Shape::kTileM + group * 64; }

  /// The thread's first fragment row; the other one is eight below.
  __device__ int row_of(const Work& work) const { return first_row(work) + thread / 32 * 16 + thread % 32 / 4; }

  /// The blocks of this warpgroup among those of the tile, one at least.
  __device__ Work part_of(const Tile& tile) const {
    Work work{tile.m, tile.head, tile.blocks.begin, tile.blocks.end, 0, 0};
    if (!kMasked || Shape::kConsumers == 1) return work;
    const Range own = key_blocks<kTileN>(p, first_row(work), min(p.seq_q, first_row(work) + 64));
    if (own.end <= own.begin) return work;
    return {tile.m, tile.head, own.begin, own.end, tile.blocks.end - own.end, own.begin - tile.blocks.begin};
  }

  /// The next tile of this block, false when there is none.
  __device__ bool fetch(Work& work) {
    for (;;) {
      barrier_wait(at(channel.bar.tile_full, tile_ring.index()), tile_ring.phase());
      const Tile tile = channel.bar.tile[tile_ring.index()];
      barrier_arrive(at(channel.bar.tile_empty, tile_ring.index()));
      tile_ring.advance();
      if (tile.m < 0) return false;
      if (!kMasked || tile.blocks.end > tile.blocks.begin) {
        work = part_of(tile);
        return true;
      }
      write_nothing<T, kHeadDim, Shape::kTileM>(p, tile, group, thread);
    }
  }

  /// Every warpgroup takes one turn for each block of a tile, whether it reads it or not. A turn waits for that of the
  /// warpgroup before; so one warpgroup's products run while the others are at their softmax. Barriers 4, 5, 6.
  __device__ void take_turn() const {
    if (Shape::kTurns) named_sync<256>(4 + group);
  }
  __device__ void pass_turn() const {
    if (Shape::kTurns) named_arrive<256>(4 + (group + 1 == Shape::kConsumers ? 0 : group + 1));
  }

  /// Waits for K (and Q at the first block of a tile) and issues S = Q K^T.
  __device__ void issue_scores(bool first_of_tile) {
    if (first_of_tile) barrier_wait(at(channel.bar.query_full, query_ring.index()), query_ring.phase());
    barrier_wait(at(channel.bar.key_full, key_ring.index()), key_ring.phase());
    take_turn();
    products_fence();
    score_product<T, Shape>(s, channel.base + query_ring.index() * Shape::kQueryBytes + group * 64 * Shape::kRowBytes,
                            channel.base + Shape::kKeysAt + key_ring.index() * Shape::kKeyBytes);
    products_commit();
  }

  __device__ void issue_values() {
    barrier_wait(at(channel.bar.value_full, value_ring.index()), value_ring.phase());
    products_fence();
    value_product<T, Shape>(o, probabilities, channel.base + Shape::kValuesAt + value_ring.index() * Shape::kKeyBytes);
    products_commit();
  }

  __device__ void release_key() {
    if (thread == 0) barrier_arrive(at(channel.bar.key_empty, key_ring.index()));
    key_ring.advance();
  }

  /// Once a warp for each tile.
  __device__ void release_query(int index) {
    if (thread % 32 == 0) barrier_arrive(at(channel.bar.query_empty, index));
  }

  __device__ void release_value() {
    if (thread == 0) barrier_arrive(at(channel.bar.value_empty, value_ring.index()));
    value_ring.advance();
  }

  __device__ void complete_values() {
    products_wait<0>();
    pin(o);
    release_value();
  }

  /// Gives back blocks that only other warpgroups read. They must be there: an arrival for a copy that has not begun
  /// would count for the one before. And every warp must have seen that they are before the first is given back: a warp
  /// that looks late could find the stage in the next phase but one, which looks like the one before.
  __device__ void pass_keys(int count) {
    if constexpr (kMasked) {
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        take_turn();
        pass_turn();
        barrier_wait(at(channel.bar.key_full, key_ring.index()), key_ring.phase());
        named_sync<128>(1 + group);
        release_key();
      }
    }
  }
  __device__ void pass_values(int count) {
    if constexpr (kMasked) {
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        barrier_wait(at(channel.bar.value_full, value_ring.index()), value_ring.phase());
        named_sync<128>(1 + group);
        release_value();
      }
    }
  }

  /// Whether a row of this warpgroup must not see some key of block n.
  __device__ bool partly_hidden(const Work& work, int n) const {
    if (!kMasked) return (n + 1) * kTileN > p.seq_k;
    const int own = first_row(work) + p.seq_k - p.seq_q;
    const int first = n * kTileN, end = first + kTileN;
    return end > min(p.seq_k, own + p.ahead + 1) || first < own + 63 - p.behind;
  }

  /// S of block n is complete: P in place of it. True if O needs the factors in alpha.
  __device__ bool soften(const Work& work, int n, RowState& rows) {
    pin(s);
    release_key();
    if (n == work.begin) {
      if (!Shape::kStaged) release_query(query_ring.index());
      query_ring.advance();
    }
    const int column = n * kTileN + 2 * (thread % 4);
    if (partly_hidden(work, n)) mask_hidden<kTileN>(s, p, row_of(work), column);
    return softmax_step<kTileN>(s, rows, alpha, p.scale_log2);
  }

  /// O of a tile is complete; `inverse` are the reciprocal sums of its rows.
  __device__ void finish(const Work& work, const float (&inverse)[2], int query_stage) {
    std::uint32_t bits[2];
    if constexpr (Shape::kStaged) {
      const int warp_row = group * 64 + thread / 32 * 16;
      send_rows<T, Shape>(p, map_o, channel.base + query_stage * Shape::kQueryBytes + warp_row * Shape::kRowBytes, o,
                          inverse, work.head, row_of(work), bits);
      if (thread % 32 == 0) copy_out_wait_read();
      release_query(query_stage);
    } else {
      write_rows<T, kHeadDim>(p, o, inverse, work.head, row_of(work), bits);
    }
    if constexpr (kMasked) {
      const unsigned votes[2] = {__ballot_sync(0xffffffffu, bits[0] != 0), __ballot_sync(0xffffffffu, bits[1] != 0)};
      if ((votes[0] | votes[1]) == 0) return;
      if (Shape::kStaged && thread % 32 == 0) copy_out_wait();
      __syncwarp();
      const Range keys{work.begin * kTileN, min(p.seq_k, work.end * kTileN)};
      repair<T, kHeadDim>(p, work.head, first_row(work) + thread / 32 * 16, votes, keys);
    }
  }

  /// S of block n beside P V of the block before it.
  __device__ void step(const Work& work, int n, RowState& state) {
    issue_scores(false);
    issue_values();
    pass_turn();
    products_wait<1>();
    const bool update = soften(work, n, state);
    complete_values();
    pack_probabilities<T, kTileN>(s, probabilities);
    if (update) rescale<kHeadDim>(o, alpha);
  }

  __device__ void run() {
    RowState state;
    Work work;
    int stage = 0;  // of the tile's Q
    if (group == Shape::kConsumers - 1) pass_turn();
    if (!fetch(work)) return;
    pass_keys(work.early);
    issue_scores(true);
    pass_turn();
    products_wait<0>();
    soften(work, work.end - 1, state);
    pack_probabilities<T, kTileN>(s, probabilities);
    pass_values(work.early);
    float inverse[2];
    for (;;) {
      clear(o);
      for (int n = work.end - 2; n >= work.begin; --n) step(work, n, state);
      // S of the next tile's first block beside the last P V of this one.
      Work next;
      if (!fetch(next)) break;
      RowState fresh;
      pass_keys(work.late + next.early);
      issue_scores(true);
      issue_values();
      pass_turn();
      products_wait<1>();
      soften(next, next.end - 1, fresh);
      complete_values();
      pass_values(work.late + next.early);
      close_rows(p, state, work.head, row_of(work), inverse);
      finish(work, inverse, stage);
      stage = stage == Shape::kQueryStages - 1 ? 0 : stage + 1;
      pack_probabilities<T, kTileN>(s, probabilities);
      state = fresh;
      work = next;
    }
    issue_values();
    close_rows(p, state, work.head, row_of(work), inverse);
    complete_values();
    finish(work, inverse, stage);
    pass_keys(work.late);
    pass_values(work.late);
  }
};

template <typename T, typename Shape, bool kMasked>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    forward_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                   const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o,
                   const __grid_constant__ ForwardParams p) {
  extern __shared__ char raw[];
  const std::uint32_t base = (shared_address(raw) + 1023) & ~1023u;
  __shared__ ForwardBarriers<Shape::kStages, Shape::kQueryStages> bar;
  if (threadIdx.x == 0) {
    prefetch_map(&map_q);
    prefetch_map(&map_k);
    prefetch_map(&map_v);
    prefetch_map(&map_o);
    for (int i = 0; i < Shape::kQueryStages; ++i) {
      barrier_init(&bar.query_full[i], 1);
      barrier_init(&bar.query_empty[i], 4 * Shape::kConsumers);
    }
    for (int i = 0; i < Shape::kStages; ++i) {
      barrier_init(&bar.key_full[i], 1);
      barrier_init(&bar.value_full[i], 1);
      barrier_init(&bar.key_empty[i], Shape::kConsumers);
      barrier_init(&bar.value_empty[i], Shape::kConsumers);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(&bar.tile_full[i], 1);
      barrier_init(&bar.tile_empty[i], 128 * Shape::kConsumers + 1);
    }
    fence_barrier_init();
  }
  __syncthreads();
  // All lanes of a warp are of one warpgroup; said so, the compiler can keep it in a uniform register.
  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  const Channel<Shape> channel{p, base, bar};
  // Of 504 (three warpgroups) or 512 (four) registers per lane that a block starts with, 24 or 32 feed the producers.
  constexpr bool kThree = Shape::kConsumers == 3;
  if (warpgroup == 0) {
    give_registers<(kThree ? 32 : 40)>();
    if (threadIdx.x == 0) produce_keys<Shape>(channel, &map_q, &map_k);
    if (threadIdx.x == 32) produce_values<Shape>(channel, &map_v);
  } else {
    take_registers<(kThree ? 160 : 232)>();
    Consumer<T, Shape, kMasked> consumer{p,  channel, &map_o, warpgroup - 1, static_cast<int>(threadIdx.x) % 128, {},
                                         {}, {},      {}};
    consumer.run();
  }
}

}  // namespace attnbench::kernels::hopper
