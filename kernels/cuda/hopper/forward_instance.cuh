// One row of the tile table: the kernel's instances for a tile shape, in both 16-bit types.
#pragma once

#include "kernels/cuda/hopper/forward_kernel.cuh"
#include "kernels/cuda/hopper/forward_plan.cuh"

namespace attnbench::kernels::hopper {

template <typename T, typename Shape, bool kMasked>
struct Forward {
  static_assert(Shape::kSharedBytes <= 232448 - 256, "a block has 227 KiB of shared memory, barriers included");

  static cudaError_t allow() {
    return cudaFuncSetAttribute(forward_kernel<T, Shape, kMasked>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                Shape::kSharedBytes);
  }
  static cudaError_t launch(const ForwardPlan& plan, cudaStream_t stream) {
    forward_kernel<T, Shape, kMasked>
        <<<plan.grid, Shape::kThreads, Shape::kSharedBytes, stream>>>(plan.q, plan.k, plan.v, plan.o, plan.params);
    return cudaGetLastError();
  }
};

template <typename Shape, bool kMasked>
constexpr ForwardInstance forward_instance(std::int64_t keys_from, int most_tiles = kAnyTiles) {
  using Bf16 = Forward<__nv_bfloat16, Shape, kMasked>;
  using Fp16 = Forward<__half, Shape, kMasked>;
  return {{Shape::kHeadDim, kMasked, Shape::kConsumers, Shape::kTileN, Shape::kStages, Shape::kQueryStages, keys_from,
           most_tiles, Shape::kTurns ? (Shape::kStaged ? "ts" : "t") : (Shape::kStaged ? "s" : "")},
          {&Bf16::allow, &Bf16::launch},
          {&Fp16::allow, &Fp16::launch}};
}

}  // namespace attnbench::kernels::hopper
