// The backward kernel itself: producer and consumer roles, one block of 128 keys per multiprocessor at a time.
#pragma once

#include <climits>

#include "kernels/cuda/hopper/backward.cuh"

namespace attnbench::kernels::hopper {

inline constexpr int kScoreBarrier = 1;  // named: dS of both consumers is in shared memory

/// Issues every copy of this block.
template <typename Shape>
__device__ inline void produce_backward(const BackwardParams& p, const CUtensorMap* map_q, const CUtensorMap* map_k,
                                        const CUtensorMap* map_v, const CUtensorMap* map_dout, char* shared,
                                        const flash_cuda::Work& work, const Steps& steps,
                                        BackwardBarriers<Shape::kStages>& bar) {
  constexpr int kTileM = Shape::kTileM;
  auto load_keys = [&](const CUtensorMap* map, char* target, std::uint64_t* full) {
    barrier_expect(full, Shape::kKeyBytes);
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      copy_in(target + c * kBackwardKeys * 128, map, full, c * 64, work.tile * kBackwardKeys, work.head_in_batch,
              work.batch);
    }
  };
  auto load_queries = [&](const CUtensorMap* map, char* target, const float* stats, char* stats_target,
                          std::uint64_t* full, const Place& at) {
    barrier_expect(full, Shape::kQueryBytes + Shape::kStatBytes);
    const int head = static_cast<int>(at.head - static_cast<long long>(work.batch) * p.shape.heads);
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      copy_in(target + c * kTileM * 128, map, full, c * 64, at.tile * kTileM, head, work.batch);
    }
    copy_line_in(stats_target, stats + at.head * p.rows + at.tile * kTileM, full, Shape::kStatBytes);
  };
  load_keys(map_k, shared, &bar.key_full);
  StageRing<Shape::kStages> ring;
  for (int step = 0; step < steps.count; ++step) {
    const Place at = place_of(p, work, steps, step);
    const int i = ring.index;
    barrier_wait(&bar.query_empty[i], ring.phase ^ 1);
    load_queries(map_q, shared + Shape::kQueryAt + i * Shape::kQueryBytes, p.lse,
                 shared + Shape::kLseAt + i * Shape::kStatBytes, &bar.query_full[i], at);
    if (step == 0) load_keys(map_v, shared + Shape::kValueAt, &bar.value_full);
    barrier_wait(&bar.output_empty[i], ring.phase ^ 1);
    load_queries(map_dout, shared + Shape::kOutputAt + i * Shape::kQueryBytes, p.delta,
                 shared + Shape::kDeltaAt + i * Shape::kStatBytes, &bar.output_full[i], at);
    ring.advance();
  }
}

/// One consumer warpgroup: its accumulators, its place in the rings, and the steps of its pipeline.
template <typename T, typename Shape>
struct BackwardConsumer {
  static constexpr int kTileM = Shape::kTileM;
  static constexpr int kStages = Shape::kStages;

  const BackwardParams& p;
  char* shared;
  BackwardBarriers<kStages>& bar;
  int group;
  int thread;
  int first_row;      // of this thread, among all keys; the other one is eight below
  int unmasked_from;  // query tiles from here on, up to unmasked_to, see every key of the block
  int unmasked_to;
  StageRing<kStages> ring;
  float dk[Shape::kHeadDim / 2];
  float dv[Shape::kHeadDim / 2];
  float s[kTileM / 2];
  float dp[kTileM / 2];
  float dq[32];
  std::uint32_t weights[kTileM / 4];    // P^T, packed
  std::uint32_t gradients[kTileM / 4];  // dS^T, packed

  __device__ const char* own_keys() const { return shared + group * 64 * 128; }
  __device__ const char* query(int stage) const { return shared + Shape::kQueryAt + stage * Shape::kQueryBytes; }
  __device__ const char* output(int stage) const { return shared + Shape::kOutputAt + stage * Shape::kQueryBytes; }

  __device__ void issue_scores(const StageRing<kStages>& at) {
    barrier_wait(&bar.query_full[at.index], at.phase);
    products_fence();
    key_product<T, Shape>(s, own_keys(), query(at.index));
    products_commit();
  }

  __device__ void issue_output_products() {
    barrier_wait(&bar.output_full[ring.index], ring.phase);
    products_fence();
    key_product<T, Shape>(dp, own_keys() + Shape::kValueAt, output(ring.index));
    products_commit();
  }

  /// dS K of this consumer's slice, then dK += dS^T Q.
  __device__ void issue_gradient_products(const char* scores) {
    products_fence();
    if constexpr (Shape::kSliceByRows) {
      slice_product<T>(dq, scores + group * kBackwardKeys * 128, shared);
    } else {
      slice_product<T>(dq, scores, shared + group * kBackwardKeys * 128);
    }
    products_commit();
    query_product<T, Shape>(dk, gradients, query(ring.index));
    products_commit();
  }

  __device__ void issue_values(bool masked, int query) {
    pack_scores<T, kTileM>(s, weights);
    if (masked) hide<kTileM>(weights, p.shape, first_row, query);
    products_fence();
    query_product<T, Shape>(dv, weights, output(ring.index));
    products_commit();
  }

  /// P^T in s, dV += P^T dO under way; then dS^T in dp and in shared memory.
  __device__ void soften(int query0, char* scores) {
    const int column = 2 * (thread % 4);
    const bool masked = query0 < unmasked_from || query0 + kTileM > unmasked_to;
    const float* lse = reinterpret_cast<const float*>(shared + Shape::kLseAt + ring.index * Shape::kStatBytes);
    probabilities_of<kTileM>(s, lse + column, p.shape.scale * flash_cuda::kLog2e);
    if constexpr (Shape::kEarlyValues) issue_values(masked, query0 + column);
    products_wait<(Shape::kEarlyValues ? 1 : 0)>();
    pin(dp);
    const float* delta = reinterpret_cast<const float*>(shared + Shape::kDeltaAt + ring.index * Shape::kStatBytes);
    gradients_of<kTileM>(dp, s, delta + column);
    pack_scores<T, kTileM>(dp, gradients);
    if (masked) hide<kTileM>(gradients, p.shape, first_row, query0 + column);
    if constexpr (!Shape::kEarlyValues) issue_values(masked, query0 + column);
    store_scores<kTileM>(scores, gradients, group * 64 + thread / 32 * 16, thread % 32);
  }

  /// One query tile, whose scores are in s on entry; kMore: those of the next one are on exit.
  template <bool kMore>
  __device__ void step(int query0, float* slice) {
    issue_output_products();
    // Two tiles of dS: whoever overwrites one has passed the barrier after which nobody reads it any more.
    char* scores = shared + Shape::kScoreAt + ring.index * Shape::kScoreBytes;
    soften(query0, scores);
    fence_async_proxy();
    named_sync<256>(kScoreBarrier);
    issue_gradient_products(scores);
    products_wait<2>();
    pin(dv);
    if (thread == 0) barrier_arrive(&bar.output_empty[ring.index]);
    StageRing<kStages> next = ring;
    if constexpr (kMore) {
      next.advance();
      issue_scores(next);
    }
    products_wait<kMore ? 2 : 1>();
    pin(dq);
    add_slice(slice, dq);
    products_wait<0>();
    pin(dk);
    if constexpr (kMore) pin(s);
    if (thread == 0) barrier_arrive(&bar.query_empty[ring.index]);
    ring = next;
  }

  __device__ void run(const flash_cuda::Work& work, const Steps& steps) {
    if (steps.count == 0) return;
    barrier_wait(&bar.key_full, 0);
    issue_scores(ring);
    products_wait<0>();
    pin(s);
    barrier_wait(&bar.value_full, 0);
    const long long head = static_cast<long long>(work.batch) * p.shape.heads + work.head_in_batch * p.shape.group;
    const int slices = p.rows / kTileM * 2;
    float* slice = p.dq_sum + (head * slices + steps.begin * 2 + group) * kSliceFloats + thread * 4;
    const int end = (steps.begin + steps.tiles) * kTileM;
    int query0 = steps.begin * kTileM;
#pragma unroll 1
    for (int left = steps.count; left > 1; --left) {
      step<true>(query0, slice);
      slice += 2 * kSliceFloats;
      query0 += kTileM;
      if (query0 == end) {  // the next head of the group
        query0 = steps.begin * kTileM;
        slice += static_cast<long long>(slices - 2 * steps.tiles) * kSliceFloats;
      }
    }
    step<false>(query0, slice);
  }
};

/// Writes one gradient of the block's keys.
template <typename T, int kHeadDim>
__device__ inline void store_gradient(const float (&x)[kHeadDim / 2], const Gradient& gradient,
                                      const flash_cuda::Work& work, int row, int rows, float scale) {
  T* out = static_cast<T*>(gradient.data) + work.batch * gradient.batch + work.head_in_batch * gradient.head;
  store_rows<T, kHeadDim>(out, gradient.row, row, rows, x, scale);
}

template <typename T, typename Shape>
__device__ inline void consume_backward(const BackwardParams& p, char* shared, const flash_cuda::Work& work,
                                        const Steps& steps, BackwardBarriers<Shape::kStages>& bar) {
  BackwardConsumer<T, Shape> consumer{p, shared, bar};
  consumer.group = static_cast<int>(threadIdx.x) / 128 - 1;
  consumer.thread = static_cast<int>(threadIdx.x) % 128;
  const int thread = consumer.thread;
  consumer.first_row = work.tile * kBackwardKeys + consumer.group * 64 + thread / 32 * 16 + thread % 32 / 4;
  const bool tail = (work.tile + 1) * kBackwardKeys > p.shape.seq_k;
  consumer.unmasked_from = tail ? INT_MAX : steps.last_key.begin;
  // A last query tile that is not full has rows of zeros, whose P is zero: no mask.
  consumer.unmasked_to = steps.first_key.end == p.shape.seq_q ? INT_MAX : steps.first_key.end;
#pragma unroll
  for (int i = 0; i < Shape::kHeadDim / 2; ++i) consumer.dk[i] = consumer.dv[i] = 0.f;
  consumer.run(work, steps);
  store_gradient<T, Shape::kHeadDim>(consumer.dv, p.dv, work, consumer.first_row, p.shape.seq_k, 1.f);
  store_gradient<T, Shape::kHeadDim>(consumer.dk, p.dk, work, consumer.first_row, p.shape.seq_k, p.shape.scale);
}

template <typename T, int kHeadDim, int kTileM, int kStages>
__global__ void __launch_bounds__(384, 1)
    backward_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                    const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_dout,
                    const BackwardParams p) {
  using Shape = BackwardShape<kHeadDim, kTileM, kStages>;
  extern __shared__ char raw[];
  char* shared = raw + ((1024 - (shared_address(raw) & 1023)) & 1023);
  __shared__ BackwardBarriers<kStages> bar;
  if (threadIdx.x == 0) {
    prefetch_map(&map_q);
    prefetch_map(&map_k);
    prefetch_map(&map_v);
    prefetch_map(&map_dout);
    barrier_init(&bar.key_full, 1);
    barrier_init(&bar.value_full, 1);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&bar.query_full[i], 1);
      barrier_init(&bar.output_full[i], 1);
      barrier_init(&bar.query_empty[i], 2);
      barrier_init(&bar.output_empty[i], 2);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const flash_cuda::Work work = flash_cuda::decode_work(p.order, p.shape.heads / p.shape.group);
  const Steps steps = steps_of<kTileM>(p.shape, work.tile * kBackwardKeys);
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      produce_backward<Shape>(p, &map_q, &map_k, &map_v, &map_dout, shared, work, steps, bar);
    }
  } else {
    take_registers<240>();
    consume_backward<T, Shape>(p, shared, work, steps, bar);
  }
}

}  // namespace attnbench::kernels::hopper
