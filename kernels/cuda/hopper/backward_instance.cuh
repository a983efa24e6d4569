// Launchers of one backward instance: statistics, the backward, the conversion of dQ.
#pragma once

#include "kernels/cuda/hopper/backward_plan.cuh"

namespace attnbench::kernels::hopper {

template <typename T, typename Shape>
struct Backward {
  static constexpr int kHeadDim = Shape::kHeadDim;

  static cudaError_t allow() {
    return cudaFuncSetAttribute(kernel_of<T>(Shape{}), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                Shape::kSharedBytes);
  }

  static cudaError_t launch(const BackwardPlan& plan, cudaStream_t stream) {
    const long long lanes = plan.rows.all_rows * kRowLanes<kHeadDim>;
    backward_rows_kernel<T, kHeadDim><<<static_cast<unsigned>((lanes + 255) / 256), 256, 0, stream>>>(plan.rows);
    kernel_of<T>(Shape{})<<<static_cast<unsigned>(plan.grid), Shape::kThreads, Shape::kSharedBytes, stream>>>(
        plan.q, plan.k, plan.v, plan.dout, plan.params);
    if (plan.unseen) {
      backward_unseen_kernel<kHeadDim, Shape::kTileM, Shape::kKeys>
          <<<static_cast<unsigned>(plan.params.tiles), Shape::kKeys, 0, stream>>>(plan.params);
    }
    const long long slices = plan.rows.all_rows / 64 * Shape::kChunks;
    backward_convert_kernel<T, kHeadDim><<<static_cast<unsigned>(slices), 128, 0, stream>>>(plan.convert);
    return cudaGetLastError();
  }
};

/// The instance of two shapes that differ in their order of summing dQ alone.
template <typename Fast, typename Ordered>
constexpr BackwardInstance backward_instance() {
  return {Fast::kHeadDim,
          Fast::kTileM,
          Fast::kKeys,
          {&Backward<__nv_bfloat16, Fast>::allow, &Backward<__nv_bfloat16, Fast>::launch},
          {&Backward<__half, Fast>::allow, &Backward<__half, Fast>::launch},
          {&Backward<__nv_bfloat16, Ordered>::allow, &Backward<__nv_bfloat16, Ordered>::launch},
          {&Backward<__half, Ordered>::allow, &Backward<__half, Ordered>::launch}};
}

}  // namespace attnbench::kernels::hopper
