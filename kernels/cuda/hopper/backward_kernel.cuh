// The backward kernel itself: producer and consumer roles, one persistent block per multiprocessor.
//
// Tiles come from a counter in global memory. The pipeline runs on across tiles: K, V and the first queries of the next
// one arrive, and its first scores are computed, while this one is finished.
#pragma once

#include "kernels/cuda/hopper/backward_guard.cuh"
#include "kernels/cuda/hopper/backward_stream.cuh"

namespace attnbench::kernels::hopper {

inline constexpr int kScoreBarrier = 1;  // named: dS of both consumers is in shared memory

/// One consumer warpgroup: its accumulators, its place in the rings, and the steps of its pipeline.
template <typename T, typename Shape>
struct BackwardConsumer : BackwardCursor<Shape> {
  static constexpr int kTileM = Shape::kTileM;

  using Cursor = BackwardCursor<Shape>;
  using Cursor::advance, Cursor::bar, Cursor::end_turn, Cursor::fetch, Cursor::group, Cursor::key_tile;
  using Cursor::left, Cursor::masked, Cursor::output, Cursor::p, Cursor::query, Cursor::query0, Cursor::shared;
  using Cursor::slice, Cursor::start, Cursor::stats, Cursor::steps, Cursor::take_turn, Cursor::thread, Cursor::tile,
      Cursor::tiles, Cursor::weigh;

  float dk[Shape::kHeadDim / 2];
  float dv[Shape::kHeadDim / 2];
  float s[kTileM / 2];
  float dp[kTileM / 2];
  float dq[32];
  std::uint32_t weights[kTileM / 4];    // P^T, packed
  std::uint32_t gradients[kTileM / 4];  // dS^T, packed

  __device__ BackwardConsumer(const BackwardParams& params, char* shared_memory, BackwardBarriers& barriers, int group_)
      : Cursor(params, shared_memory, barriers, group_) {}

  /// This thread's first row, among all keys; the other one is eight below.
  __device__ int first_row() const { return tile().key0 + group * 64 + thread / 32 * 16 + thread % 32 / 4; }

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
      slice_product<T, Shape::kKeys>(dq, scores + group * Shape::kKeys * 128, key_tile());
    } else {
      slice_product<T, Shape::kKeys>(dq, scores, key_tile() + group * Shape::kKeys * 128);
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
    store_scores<kTileM, Shape::kKeys>(scores, gradients, group * 64 + thread / 32 * 16, thread % 32);
    return guarded;
  }

  /// What a masked step does about values that are not finite; true if there were any. Then dV has its share already.
  __device__ bool guard(bool first_of_tile) {
    return guard_step<T, Shape>(*this, [&](const char* output) {
      if (first_of_tile) {
#pragma unroll
        for (float& x : dv) x = 0.f;
      }
      add_odd<T, Shape>(dv, output, p.shape, first_row(), query0, thread % 32);
    });
  }

  /// Undoes the guard's work on K, once the dQ of both consumers is computed.
  __device__ void restore_keys() {
    products_wait<1>();
    pin(dq);
    hopper::restore_keys<Shape>(*this);
  }

  /// P of a step whose S is complete, in its place; meanwhile its dP, which is complete on return.
  __device__ void soften(bool of_next_tile) {
    weigh(s, of_next_tile);
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
      soften(false);
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
    take_turn();
    add_slice(slice, dq);
    if constexpr (Shape::kOverlaps) issue_output_products(next_tile, steps + 1, exists, last_of_tile);
    products_wait<(Shape::kOverlaps ? 1 : 0)>();
    pin(dk);
    pin(s);
    barrier_arrive(&bar.query_empty[stage_of(steps)]);  // by every thread: each has read lse and delta
    if (last_of_tile && thread == 0) barrier_arrive(&bar.key_empty[stage_of(tiles)]);
    ++steps;
    if (!last_of_tile) advance();
    if constexpr (Shape::kOverlaps) soften(last_of_tile);
  }

  /// Writes one gradient of the tile's keys.
  __device__ void store(const float (&x)[Shape::kHeadDim / 2], const Rows& gradient, float scale) const {
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
      soften(false);
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
      BackwardStream<Shape, true> stream{
          p, bar, &map_k, &map_q, shared, bar.key_full, bar.key_empty, bar.query_full, bar.query_empty};
      stream.lead();
    } else if (threadIdx.x == 32) {
      BackwardStream<Shape, false> stream{
          p, bar, &map_v, &map_dout, shared, bar.value_full, bar.key_empty, bar.output_full, bar.output_empty};
      stream.follow();
    }
  } else {
    take_registers<240>();
    BackwardConsumer<T, Shape> consumer(p, shared, bar, __shfl_sync(0xffffffffu, warpgroup, 0) - 1);
    consumer.run();
  }
}

/// The kernel of a shape.
template <typename T, int kHeadDim, int kTileM, bool kOrdered>
constexpr auto kernel_of(BackwardShape<kHeadDim, kTileM, kOrdered>) {
  return &backward_kernel<T, BackwardShape<kHeadDim, kTileM, kOrdered>>;
}

}  // namespace attnbench::kernels::hopper
