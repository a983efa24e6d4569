// The backward of wide heads: a block owns 64 keys, and its two consumer warpgroups have different work.
//
// dK and dV of 64 keys take two warpgroups' registers, 128 fp32 values a thread at head dimension 256. So one has all
// of dV and what leads to it, the other all of dK:
//   scores:     S^T = K Q^T, P^T = exp2(...), handed over in fp32 through shared memory; dV += P^T dO
//   gradients:  dP^T = V dO^T, dS^T = P^T (dP^T - delta), handed over in 16 bits; dK += dS^T Q
// and each computes some columns of dQ = dS K. P^T and dS^T are A operands from registers, of products as wide as the
// head: a step takes 2.9 thousand clocks of shared memory for 2.6 thousand of products.
#pragma once

#include "kernels/cuda/hopper/backward_guard.cuh"
#include "kernels/cuda/hopper/backward_stream.cuh"

namespace attnbench::kernels::hopper {

inline constexpr int kWideScoreBarrier = 1;   // named: dS is in shared memory; the one before has been read
inline constexpr int kWideWeightBarrier = 5;  // named: P is in shared memory

template <int kHeadDim_, bool kOrdered_>
struct WideShape {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kTileM = 64;
  static constexpr int kKeys = 64;
  static constexpr bool kOrdered = kOrdered_;
  static constexpr int kStages = 2;
  static constexpr int kKeyStages = 1;
  static constexpr int kChunks = chunks_of(kHeadDim);
  static constexpr int kKeyBytes = kKeys * kChunks * 128;
  static constexpr int kQueryBytes = kTileM * kChunks * 128;
  static constexpr int kStatBytes = kTileM * 4;
  // Shared memory: K, V, stages of Q, dO, dS, P, stages of lse, delta.
  static constexpr int kValueAt = kKeyBytes;
  static constexpr int kQueryAt = 2 * kKeyBytes;
  static constexpr int kOutputAt = kQueryAt + kStages * kQueryBytes;
  static constexpr int kScoreAt = kOutputAt + kStages * kQueryBytes;
  static constexpr int kWeightAt = kScoreAt + kKeys * kTileM * 2;
  static constexpr int kLseAt = kWeightAt + kKeys * kTileM * 4;
  static constexpr int kDeltaAt = kLseAt + kStages * kStatBytes;
  static constexpr int kSharedBytes = 1024 + kDeltaAt + kStages * kStatBytes;
  static constexpr int kThreads = 3 * 128;
  // dQ: the first consumer has two chunks of its columns, the second the rest.
  static constexpr int kStepFloats = kChunks * kSliceFloats;
  static constexpr int kGroupFloats = 2 * kSliceFloats;
  static_assert(kChunks == 3 || kChunks == 4, "dQ is two chunks, and one or two more");
  static_assert(kSharedBytes + 512 <= 232448, "a block has 227 KiB of shared memory");
};

/// What both consumers do.
template <typename T, typename Shape, int kSlices>
struct WideConsumer : BackwardCursor<Shape> {
  using Cursor = BackwardCursor<Shape>;

  float sum[Shape::kHeadDim / 2];           // dV or dK
  float x[Shape::kTileM / 2];               // S or dP, and what becomes of it
  float dq[32];                             // one slice
  std::uint32_t packed[Shape::kTileM / 4];  // P^T or dS^T

  __device__ WideConsumer(const BackwardParams& params, char* shared_memory, BackwardBarriers& barriers, int group)
      : Cursor(params, shared_memory, barriers, group) {}

  /// This thread's first key, among all; the other one is eight below.
  __device__ int first_row() const { return this->tile().key0 + this->thread / 32 * 16 + this->thread % 32 / 4; }

  __device__ float4* weights() const {
    return reinterpret_cast<float4*>(this->shared + Shape::kWeightAt) + this->thread;
  }
  __device__ char* scores() const { return this->shared + Shape::kScoreAt; }

  /// x = a b^T, a stage of Q or dO being b.
  __device__ void issue_key_product(const char* a, const char* b) {
    forget(x);
    products_fence();
    key_product<T, Shape>(x, a, b);
    products_commit();
  }

  /// sum (+)= packed b.
  __device__ void issue_query_product(const char* b, int accumulate) {
    products_fence();
    query_product<T, Shape>(sum, packed, b, accumulate);
    products_commit();
  }

  __device__ void issue_slice(int index) {
    forget(dq);
    products_fence();
    slice_product<T, Shape::kKeys>(dq, scores(), this->key_tile() + (this->group * 2 + index) * Shape::kKeys * 128);
    products_commit();
  }

  /// This consumer's part of dQ, but for the last slice, which is under way on return; so dV or dK is no more.
  __device__ void begin_dq() {
    issue_slice(0);
    products_wait<kSlices == 1 ? 1 : 0>();
    pin(sum);
    this->take_turn();
    if constexpr (kSlices == 2) {
      pin(dq);
      add_slice(this->slice, dq);
      issue_slice(1);
    }
  }

  __device__ void end_dq() {
    pin(dq);
    add_slice(this->slice + (kSlices - 1) * kSliceFloats, dq);
  }

  __device__ void pack_and_hide() {
    pack_scores<T, Shape::kTileM>(x, packed);
    if (this->masked) {
      hide<Shape::kTileM>(packed, this->p.shape, first_row(), this->query0 + 2 * (this->thread % 4));
    }
  }

  __device__ void restore_keys() {
    products_wait<0>();
    pin(dq);
    hopper::restore_keys<Shape>(*this);
  }

  /// The end of a tile: writes the gradient of its keys.
  __device__ void finish(const Rows& gradient, float scale) {
    if constexpr (Shape::kOrdered) this->end_turn();
    const BackwardTile& now = this->tile();
    T* out = static_cast<T*>(gradient.data) + now.batch * gradient.batch + now.kv_head * gradient.head;
    store_rows<T, Shape::kHeadDim>(out, gradient.row, first_row(), this->p.shape.seq_k, sum, scale);
    barrier_arrive(&this->bar.tile_empty[stage_of(this->tiles)]);
    ++this->tiles;
  }
};

/// The first consumer: S, P, dV.
template <typename T, typename Shape>
struct WideScores : WideConsumer<T, Shape, 2> {
  using Base = WideConsumer<T, Shape, 2>;
  using Base::bar, Base::dq, Base::masked, Base::p, Base::packed, Base::steps, Base::sum, Base::thread, Base::x;
  using Base::Base;

  __device__ void issue_scores(int step) {
    barrier_wait(&bar.query_full[stage_of(step)], parity_of(step));
    this->issue_key_product(this->key_tile(), this->shared + Shape::kQueryAt + stage_of(step) * Shape::kQueryBytes);
  }

  __device__ void hand_over() {
    float4* const to = this->weights();
#pragma unroll
    for (int j = 0; j < Shape::kTileM / 8; ++j) {
      to[j * 128] = make_float4(x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]);
    }
    named_arrive<kConsumerThreads>(kWideWeightBarrier);
  }

  __device__ bool guard(bool first_of_tile) {
    return guard_step<T, Shape>(*this, [&](const char* output) {
      if (first_of_tile) {
#pragma unroll
        for (float& value : sum) value = 0.f;
      }
      add_odd<T, Shape>(sum, output, p.shape, this->first_row(), this->query0, thread % 32);
    });
  }

  /// One query tile, whose S is complete on entry; so is the next one's on exit, but for the last.
  template <bool kLast>
  __device__ void step(bool first_of_tile) {
    this->weigh(x, false);
    hand_over();
    if constexpr (Shape::kOrdered) this->end_turn();
    this->pack_and_hide();
    barrier_wait(&bar.output_full[stage_of(steps)], parity_of(steps));
    const bool guarded = masked && guard(first_of_tile);
    this->issue_query_product(this->output(), first_of_tile && !guarded ? 0 : 1);
    named_sync<kConsumerThreads>(kWideScoreBarrier);
    this->begin_dq();
    if (guarded) this->restore_keys();
    if constexpr (!kLast) issue_scores(steps + 1);
    products_wait<(kLast ? 0 : 1)>();
    this->end_dq();
    if (thread == 0) {
      barrier_arrive(&bar.output_empty[stage_of(steps)]);
      if constexpr (kLast) barrier_arrive(&bar.key_empty[0]);
    }
    if constexpr (!kLast) {
      products_wait<0>();
      pin(x);
      this->advance();
    }
    ++steps;
  }

  __device__ void run() {
#pragma unroll 1
    while (this->fetch(this->tiles)) {
      this->start();
      barrier_wait(&bar.key_full[0], parity_of<1>(this->tiles));
      issue_scores(steps);
      products_wait<0>();
      pin(x);
      bool first_of_tile = true;
#pragma unroll 1
      for (; this->left > 1; first_of_tile = false) step<false>(first_of_tile);
      step<true>(first_of_tile);
      this->finish(p.dv, 1.f);
    }
  }
};

/// The second consumer: dP, dS, dK.
template <typename T, typename Shape>
struct WideGradients : WideConsumer<T, Shape, Shape::kChunks - 2> {
  using Base = WideConsumer<T, Shape, Shape::kChunks - 2>;
  using Base::bar, Base::dq, Base::masked, Base::p, Base::packed, Base::steps, Base::sum, Base::thread, Base::x;
  using Base::Base;

  __device__ void issue_output_products(int step) {
    barrier_wait(&bar.output_full[stage_of(step)], parity_of(step));
    this->issue_key_product(this->shared + Shape::kValueAt,
                            this->shared + Shape::kOutputAt + stage_of(step) * Shape::kQueryBytes);
  }

  /// x = P (x - delta), once P is there.
  __device__ void differentiate() {
    barrier_wait(&bar.query_full[stage_of(steps)], parity_of(steps));
    named_sync<kConsumerThreads>(kWideWeightBarrier);
    const float4* const weights = this->weights();
    const float* const delta = this->stats(Shape::kDeltaAt);
#pragma unroll
    for (int j = 0; j < Shape::kTileM / 8; ++j) {
      const float4 four = weights[j * 128];
      const float2 two = *reinterpret_cast<const float2*>(delta + 8 * j);
      x[4 * j] = four.x * (x[4 * j] - two.x);
      x[4 * j + 1] = four.y * (x[4 * j + 1] - two.y);
      x[4 * j + 2] = four.z * (x[4 * j + 2] - two.x);
      x[4 * j + 3] = four.w * (x[4 * j + 3] - two.y);
    }
  }

  /// One query tile, whose dP is complete on entry; so is the next one's on exit, but for the last.
  template <bool kLast>
  __device__ void step(bool first_of_tile) {
    if (kLast && thread == 0) barrier_arrive(&bar.value_empty[0]);
    if constexpr (Shape::kOrdered) this->end_turn();
    differentiate();
    this->pack_and_hide();
    const bool guarded = masked && guard_step<T, Shape>(*this, [](const char*) {});
    store_scores<Shape::kTileM, Shape::kKeys>(this->scores(), packed, thread / 32 * 16, thread % 32);
    fence_async_proxy();
    named_sync<kConsumerThreads>(kWideScoreBarrier);
    this->issue_query_product(this->query(), first_of_tile ? 0 : 1);
    this->begin_dq();
    if (guarded) this->restore_keys();
    if constexpr (!kLast) issue_output_products(steps + 1);
    products_wait<(kLast ? 0 : 1)>();
    this->end_dq();
    if (thread == 0) {
      barrier_arrive(&bar.query_empty[stage_of(steps)]);
      if constexpr (kLast) barrier_arrive(&bar.key_empty[0]);
    }
    if constexpr (!kLast) {
      products_wait<0>();
      pin(x);
      this->advance();
    }
    ++steps;
  }

  __device__ void run() {
#pragma unroll 1
    while (this->fetch(this->tiles)) {
      this->start();
      barrier_wait(&bar.key_full[0], parity_of<1>(this->tiles));
      barrier_wait(&bar.value_full[0], parity_of<1>(this->tiles));
      issue_output_products(steps);
      products_wait<0>();
      pin(x);
      bool first_of_tile = true;
#pragma unroll 1
      for (; this->left > 1; first_of_tile = false) step<false>(first_of_tile);
      step<true>(first_of_tile);
      this->finish(p.dk, p.shape.scale);
    }
  }
};

__device__ inline void init_wide_barriers(BackwardBarriers& bar) {
  for (int i = 0; i < 2; ++i) {
    for (std::uint64_t* one : {bar.key_full, bar.value_full, bar.value_empty, bar.query_full, bar.query_empty,
                               bar.output_full, bar.output_empty, bar.tile_full}) {
      barrier_init(one + i, 1);
    }
    barrier_init(&bar.key_empty[i], 2);
    barrier_init(&bar.tile_empty[i], kConsumerThreads + 1);
    bar.turn_place[i] = nullptr;
  }
  fence_barrier_init();
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(384, 1)
    backward_wide_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
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
    init_wide_barriers(bar);
  }
  __syncthreads();
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    give_registers<40>();
    if (threadIdx.x == 0) {
      BackwardStream<Shape, true> stream{
          p, bar, &map_k, &map_q, shared, bar.key_full, bar.key_empty, bar.query_full, bar.query_empty};
      stream.lead();
    } else if (threadIdx.x == 32) {
      BackwardStream<Shape, false> stream{
          p, bar, &map_v, &map_dout, shared, bar.value_full, bar.value_empty, bar.output_full, bar.output_empty};
      stream.follow();
    }
  } else if (warpgroup == 1) {
    take_registers<232>();
    WideScores<T, Shape>(p, shared, bar, 0).run();
  } else {
    take_registers<232>();
    WideGradients<T, Shape>(p, shared, bar, 1).run();
  }
}

/// The kernel of a shape.
template <typename T, int kHeadDim, bool kOrdered>
constexpr auto kernel_of(WideShape<kHeadDim, kOrdered>) {
  return &backward_wide_kernel<T, WideShape<kHeadDim, kOrdered>>;
}

}  // namespace attnbench::kernels::hopper
