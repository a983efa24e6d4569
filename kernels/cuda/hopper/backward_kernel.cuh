// The backward kernel itself: producer and consumer roles, one persistent block per multiprocessor.
//
// Tiles come from a counter in global memory. The pipeline runs on across tiles: K, V and the first queries of the next
// one arrive, and its first scores are computed, while this one is finished.
#pragma once

#include <climits>

#include "kernels/cuda/hopper/backward_guard.cuh"

namespace attnbench::kernels::hopper {

inline constexpr int kScoreBarrier = 1;  // named: dS of both consumers is in shared memory
inline constexpr int kGuardBarrier = 2;  // named: the steps of a guard
inline constexpr int kTurnBarrier = 3;   // named, and the next one: one consumer's part of dQ is added

/// One of two threads that issue copies: K, and Q of every step with its lse and delta, or V and dO.
template <typename Shape, bool kLeads>
struct BackwardStream {
  const BackwardParams& p;
  BackwardBarriers& bar;
  const CUtensorMap *map_key, *map_query;
  char* shared;
  std::uint64_t *key_full, *full, *empty;
  int tiles = 0;  // so far
  int steps = 0;

  __device__ void load_step(int query0, int head, int batch) {
    const int stage = stage_of(steps);
    barrier_wait(empty + stage, parity_of(steps) ^ 1);
    barrier_expect(full + stage, Shape::kQueryBytes + (kLeads ? 2 * Shape::kStatBytes : 0));
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      copy_in(
          shared + (kLeads ? Shape::kQueryAt : Shape::kOutputAt) + stage * Shape::kQueryBytes + c * Shape::kTileM * 128,
          map_query, full + stage, c * 64, query0, head, batch);
    }
    if constexpr (kLeads) {
      const unsigned row = static_cast<unsigned>((batch * p.shape.heads + head) * p.rows + query0);
      copy_line_in(shared + Shape::kLseAt + stage * Shape::kStatBytes, p.lse + row, full + stage, Shape::kStatBytes);
      copy_line_in(shared + Shape::kDeltaAt + stage * Shape::kStatBytes, p.delta + row, full + stage,
                   Shape::kStatBytes);
    }
    ++steps;
  }

  __device__ void load_tile() {
    const int stage = stage_of(tiles);
    const BackwardTile& tile = bar.tile[stage];
    barrier_wait(&bar.key_empty[stage], parity_of(tiles) ^ 1);
    barrier_expect(key_full + stage, Shape::kKeyBytes);
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      copy_in(shared + (kLeads ? 0 : Shape::kValueAt) + stage * Shape::kKeyBytes + c * kBackwardKeys * 128, map_key,
              key_full + stage, c * 64, tile.key0, tile.kv_head, tile.batch);
    }
#pragma unroll 1
    for (int member = 0; member < p.shape.group; ++member) {
#pragma unroll 1
      for (int query0 = tile.query0; query0 < tile.query_end; query0 += Shape::kTileM) {
        load_step(query0, tile.kv_head * p.shape.group + member, tile.batch);
      }
    }
    ++tiles;
  }

  /// Tells the others about tile t, if any query sees its keys; the other tiles are the host's business. t beyond the
  /// last: that there is none.
  __device__ bool announce(int t) {
    const int stage = stage_of(tiles);
    Steps range{};
    flash_cuda::Work work{};
    if (t < p.tiles) {
      work = work_of(p, t);
      range = steps_of<Shape::kTileM>(p.shape, work.tile * kBackwardKeys);
      if (range.count == 0) return false;
    }
    barrier_wait(&bar.tile_empty[stage], parity_of(tiles) ^ 1);
    BackwardTile& tile = bar.tile[stage];
    tile.batch = work.batch;
    tile.kv_head = work.head_in_batch;
    tile.key0 = work.tile * kBackwardKeys;
    tile.query0 = range.begin * Shape::kTileM;
    tile.query_end = (range.begin + range.tiles) * Shape::kTileM;
    tile.unmasked_from = tile.key0 + kBackwardKeys > p.shape.seq_k ? INT_MAX : range.last_key.begin;
    // A last query tile that is not full has rows of zeros, whose P is zero: no mask.
    tile.unmasked_to = range.first_key.end == p.shape.seq_q ? INT_MAX : range.first_key.end;
    tile.steps = range.count;
    barrier_arrive(&bar.tile_full[stage]);
    return true;
  }

  /// The stream that takes tiles.
  __device__ void lead() {
#pragma unroll 1
    for (int t = static_cast<int>(blockIdx.x);;) {
      const bool seen = announce(t);
      if (t >= p.tiles) return;
      if (seen) load_tile();
      t = static_cast<int>(gridDim.x) + atomicAdd(p.counter, 1);
    }
  }

  __device__ void follow() {
#pragma unroll 1
    for (;;) {
      const int stage = stage_of(tiles);
      barrier_wait(&bar.tile_full[stage], parity_of(tiles));
      if (bar.tile[stage].steps == 0) return;
      load_tile();
      barrier_arrive(&bar.tile_empty[stage]);
    }
  }
};

/// One consumer warpgroup: its accumulators, its place in the rings, and the steps of its pipeline.
template <typename T, typename Shape>
struct BackwardConsumer {
  static constexpr int kTileM = Shape::kTileM;

  const BackwardParams& p;
  char* shared;
  BackwardBarriers& bar;
  int group;
  int thread;
  int tiles = 0;  // finished so far
  int steps = 0;
  int query0;
  int left;      // steps of the tile
  bool masked;   // some key of the tile is hidden from some query of the step
  float* slice;  // this thread's part of the step's dQ
  float dk[Shape::kHeadDim / 2];
  float dv[Shape::kHeadDim / 2];
  float s[kTileM / 2];
  float dp[kTileM / 2];
  float dq[32];
  std::uint32_t weights[kTileM / 4];    // P^T, packed
  std::uint32_t gradients[kTileM / 4];  // dS^T, packed

  __device__ const BackwardTile& tile() const { return bar.tile[stage_of(tiles)]; }
  __device__ const char* key_tile() const { return shared + stage_of(tiles) * Shape::kKeyBytes; }
  __device__ const char* query() const { return shared + Shape::kQueryAt + stage_of(steps) * Shape::kQueryBytes; }
  __device__ const char* output() const { return shared + Shape::kOutputAt + stage_of(steps) * Shape::kQueryBytes; }
  __device__ const float* stats(int at) const {
    return reinterpret_cast<const float*>(shared + at + stage_of(steps) * Shape::kStatBytes) + 2 * (thread % 4);
  }
  /// This thread's first row, among all keys; the other one is eight below.
  __device__ int first_row() const { return tile().key0 + group * 64 + thread / 32 * 16 + thread % 32 / 4; }

  /// Takes the tile that `tiles` counts up to; false when there is none.
  __device__ bool fetch(int count) {
    barrier_wait(&bar.tile_full[stage_of(count)], parity_of(count));
    return __shfl_sync(0xffffffffu, bar.tile[stage_of(count)].steps, 0) > 0;
  }

  __device__ void look() { masked = query0 < tile().unmasked_from || query0 + kTileM > tile().unmasked_to; }

  __device__ void start() {
    const BackwardTile& now = tile();
    query0 = now.query0;
    left = __shfl_sync(0xffffffffu, now.steps, 0);
    const long long head = static_cast<long long>(now.batch) * p.shape.heads + now.kv_head * p.shape.group;
    slice = p.dq_sum + (head * p.rows + now.query0) * Shape::kHeadDim + group * kSliceFloats + thread * 4;
    look();
  }

  /// To the next step of the tile: the next queries, or the first of the next head of the group.
  __device__ void advance() {
    --left;
    query0 += kTileM;
    slice += 2 * kSliceFloats;
    if (query0 == tile().query_end) {
      query0 = tile().query0;
      slice += (p.rows - (tile().query_end - query0)) * static_cast<long long>(Shape::kHeadDim);
    }
    look();
  }

  /// S of a step. Not `exists`: there is no such step, s becomes anything.
  __device__ void issue_scores(int tile_count, int step_count, bool exists, bool first_of_tile) {
    if (exists) {
      if (first_of_tile) barrier_wait(&bar.key_full[stage_of(tile_count)], parity_of(tile_count));
      barrier_wait(&bar.query_full[stage_of(step_count)], parity_of(step_count));
    }
    forget(s);
    products_fence();
    key_product<T, Shape>(s, shared + stage_of(tile_count) * Shape::kKeyBytes + group * 64 * 128,
                          shared + Shape::kQueryAt + stage_of(step_count) * Shape::kQueryBytes);
    products_commit();
  }

  /// dP of a step, under the same terms.
  __device__ void issue_output_products(int tile_count, int step_count, bool exists, bool first_of_tile) {
    if (exists) {
      if (first_of_tile) barrier_wait(&bar.value_full[stage_of(tile_count)], parity_of(tile_count));
      barrier_wait(&bar.output_full[stage_of(step_count)], parity_of(step_count));
    }
    forget(dp);
    products_fence();
    key_product<T, Shape>(dp, shared + Shape::kValueAt + stage_of(tile_count) * Shape::kKeyBytes + group * 64 * 128,
                          shared + Shape::kOutputAt + stage_of(step_count) * Shape::kQueryBytes);
    products_commit();
  }

  __device__ void issue_values(int accumulate) {
    products_fence();
    query_product<T, Shape>(dv, weights, output(), accumulate);
    products_commit();
  }

  /// dS K of this consumer's slice, then dK += dS^T Q.
  __device__ void issue_gradient_products(const char* scores, int accumulate) {
    forget(dq);
    products_fence();
    if constexpr (Shape::kSliceByRows) {
      slice_product<T>(dq, scores + group * kBackwardKeys * 128, key_tile());
    } else {
      slice_product<T>(dq, scores, key_tile() + group * kBackwardKeys * 128);
    }
    products_commit();
    query_product<T, Shape>(dk, gradients, query(), accumulate);
    products_commit();
  }

  /// dS^T, packed and in shared memory, from P^T in s and dP^T; P^T packed, dV under way. True if a guard was needed.
  __device__ bool differentiate(bool first_of_tile, char* scores) {
    gradients_of<kTileM>(dp, s, stats(Shape::kDeltaAt));
    pack_scores<T, kTileM>(dp, gradients);
    pack_scores<T, kTileM>(s, weights);
    bool guarded = false;
    if (masked) {
      hide<kTileM>(gradients, p.shape, first_row(), query0 + 2 * (thread % 4));
      hide<kTileM>(weights, p.shape, first_row(), query0 + 2 * (thread % 4));
      guarded = guard(first_of_tile);
    }
    issue_values(first_of_tile && !guarded ? 0 : 1);
    store_scores<kTileM>(scores, gradients, group * 64 + thread / 32 * 16, thread % 32);
    return guarded;
  }

  /// Takes what is not finite out of Q, dO and K of a masked step, whose S and dP are computed; true if there was any.
  /// Then dV has its share of it already.
  __device__ bool guard(bool first_of_tile) {
    int all = group * 128 + thread;
    asm volatile("" : "+r"(all));  // so that no address is computed, and kept, outside of this rare branch
    char* const tiles_of_step[2] = {shared + Shape::kQueryAt + stage_of(steps) * Shape::kQueryBytes,
                                    shared + Shape::kOutputAt + stage_of(steps) * Shape::kQueryBytes};
    char* const own_key_tile = shared + stage_of(tiles) * Shape::kKeyBytes;
    const bool odd = odd_in<T, Shape::kQueryBytes>(tiles_of_step[0], all) |
                     odd_in<T, Shape::kQueryBytes>(tiles_of_step[1], all) |
                     odd_in<T, Shape::kKeyBytes>(own_key_tile, all);
    if (!named_sync_or<kConsumerThreads>(kGuardBarrier, odd)) return false;
    if (first_of_tile) {
#pragma unroll
      for (float& x : dv) x = 0.f;
    }
    add_odd<T, Shape>(dv, tiles_of_step[1], p.shape, first_row(), query0, thread % 32);
    named_sync<kConsumerThreads>(kGuardBarrier);
    take_out<T, Shape::kQueryBytes>(tiles_of_step[0], all);
    take_out<T, Shape::kQueryBytes>(tiles_of_step[1], all);
    take_out<T, Shape::kKeyBytes>(own_key_tile, all);
    fence_async_proxy();
    named_sync<kConsumerThreads>(kGuardBarrier);
    return true;
  }

  /// Undoes the guard's work on K, once the dQ of both consumers is computed.
  __device__ void restore_keys() {
    products_wait<1>();
    pin(dq);
    named_sync<kConsumerThreads>(kGuardBarrier);
    int all = group * 128 + thread;
    asm volatile("" : "+r"(all));
    put_back<Shape>(shared + stage_of(tiles) * Shape::kKeyBytes, p.k, tile(), p.shape.seq_k, all);
    fence_async_proxy();
    named_sync<kConsumerThreads>(kGuardBarrier);
  }

  /// Adds this step's dQ. Ordered: when its turn comes; those after it are told by end_turn, in the next step, when the
  /// sums have had time to arrive.
  __device__ void add_dq() {
    if constexpr (Shape::kOrdered) {
      int* const place = p.turns + (slice - thread * 4 - p.dq_sum) / kSliceFloats;
      const int mine = turn_of<kTileM>(p.shape, tile().key0 / kBackwardKeys, query0);
      while (load_acquire(place) != mine) {
      }
      if (thread == 0) {
        bar.turn_place[group] = place;
        bar.turn_next[group] = mine + 1;
      }
    }
    add_slice(slice, dq);
  }

  __device__ void end_turn() {
    __threadfence();
    group == 0 ? named_sync<128>(kTurnBarrier) : named_sync<128>(kTurnBarrier + 1);
    if (thread == 0 && bar.turn_place[group] != nullptr) {
      store_release(bar.turn_place[group], bar.turn_next[group]);
      bar.turn_place[group] = nullptr;
    }
  }

  /// P of a step whose S is complete, in its place; meanwhile its dP, which is complete on return.
  __device__ void soften() {
    probabilities_of<kTileM>(s, stats(Shape::kLseAt), p.shape.scale * flash_cuda::kLog2e);
    pin(s);  // not after the wait
    if constexpr (Shape::kOrdered) end_turn();
    products_wait<0>();
    pin(dp);
  }

  /// One query tile, whose S is in s on entry (kOverlaps: P, and dP in dp); so it is for the next one on exit, if that
  /// `exists`.
  __device__ void step(bool first_of_tile, bool last_of_tile, bool exists) {
    // Two tiles of dS: whoever overwrites one has passed the barrier after which nobody reads it any more.
    char* scores = shared + Shape::kScoreAt + stage_of(steps) * Shape::kScoreBytes;
    if constexpr (!Shape::kOverlaps) {
      issue_output_products(tiles, steps, true, first_of_tile);
      soften();
    }
    const bool guarded = differentiate(first_of_tile, scores);
    fence_async_proxy();
    named_sync<kConsumerThreads>(kScoreBarrier);
    issue_gradient_products(scores, first_of_tile ? 0 : 1);
    products_wait<2>();
    pin(dv);
    if (thread == 0) barrier_arrive(&bar.output_empty[stage_of(steps)]);
    if (guarded) restore_keys();
    const int next_tile = tiles + (last_of_tile ? 1 : 0);
    issue_scores(next_tile, steps + 1, exists, last_of_tile);
    products_wait<2>();
    pin(dq);
    add_dq();
    if constexpr (Shape::kOverlaps) issue_output_products(next_tile, steps + 1, exists, last_of_tile);
    products_wait<(Shape::kOverlaps ? 1 : 0)>();
    pin(dk);
    pin(s);
    barrier_arrive(&bar.query_empty[stage_of(steps)]);  // by every thread: each has read lse and delta
    if (last_of_tile && thread == 0) barrier_arrive(&bar.key_empty[stage_of(tiles)]);
    ++steps;
    if (!last_of_tile) advance();
    if constexpr (Shape::kOverlaps) soften();
  }

  /// Writes one gradient of the tile's keys.
  __device__ void store(const float (&x)[Shape::kHeadDim / 2], const KeyRows& gradient, float scale) const {
    T* out = static_cast<T*>(gradient.data) + tile().batch * gradient.batch + tile().kv_head * gradient.head;
    store_rows<T, Shape::kHeadDim>(out, gradient.row, first_row(), p.shape.seq_k, x, scale);
  }

  __device__ void run() {
    if (!fetch(0)) return;
    start();
    issue_scores(0, 0, true, true);
    products_wait<0>();
    pin(s);
    if constexpr (Shape::kOverlaps) {
      issue_output_products(0, 0, true, true);
      soften();
    }
    bool first_of_tile = true;
#pragma unroll 1
    for (;;) {
      const bool last_of_tile = left == 1;
      const bool exists = !last_of_tile || fetch(tiles + 1);
      step(first_of_tile, last_of_tile, exists);
      first_of_tile = last_of_tile;
      if (!last_of_tile) continue;
      if constexpr (Shape::kOrdered && !Shape::kOverlaps) end_turn();
      store(dv, p.dv, 1.f);
      store(dk, p.dk, p.shape.scale);
      barrier_arrive(&bar.tile_empty[stage_of(tiles)]);
      ++tiles;
      if (!exists) return;
      start();
    }
  }
};

__device__ inline void init_barriers(BackwardBarriers& bar) {
  for (int i = 0; i < 2; ++i) {
    for (std::uint64_t* full : {bar.key_full, bar.value_full, bar.query_full, bar.output_full, bar.tile_full}) {
      barrier_init(full + i, 1);
    }
    for (std::uint64_t* empty : {bar.key_empty, bar.output_empty}) barrier_init(empty + i, 2);
    barrier_init(&bar.query_empty[i], kConsumerThreads);
    barrier_init(&bar.tile_empty[i], kConsumerThreads + 1);
    bar.turn_place[i] = nullptr;
  }
  fence_barrier_init();
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(384, 1)
    backward_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                    const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_dout,
                    const BackwardParams p) {
  extern __shared__ char raw[];
  char* shared = raw + ((1024 - (shared_address(raw) & 1023)) & 1023);
  __shared__ BackwardBarriers bar;
  if (threadIdx.x == 0) {
    prefetch_map(&map_q);
    prefetch_map(&map_k);
    prefetch_map(&map_v);
    prefetch_map(&map_dout);
    init_barriers(bar);
  }
  __syncthreads();
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      BackwardStream<Shape, true> stream{p, bar, &map_k, &map_q, shared, bar.key_full, bar.query_full, bar.query_empty};
      stream.lead();
    } else if (threadIdx.x == 32) {
      BackwardStream<Shape, false> stream{
          p, bar, &map_v, &map_dout, shared, bar.value_full, bar.output_full, bar.output_empty};
      stream.follow();
    }
  } else {
    take_registers<240>();
    BackwardConsumer<T, Shape> consumer{p, shared, bar};
    consumer.group = __shfl_sync(0xffffffffu, warpgroup, 0) - 1;
    consumer.thread = static_cast<int>(threadIdx.x) % 128;
    consumer.run();
  }
}

}  // namespace attnbench::kernels::hopper
