// Launchers of one backward instance: statistics, the backward, the conversion of dQ.
#pragma once

#include "kernels/cuda/hopper/backward_kernel.cuh"
#include "kernels/cuda/hopper/backward_plan.cuh"

namespace attnbench::kernels::hopper {

template <typename T, typename Shape>
struct Backward {
  static constexpr int kHeadDim = Shape::kHeadDim;
  static constexpr int kTileM = Shape::kTileM;

  static cudaError_t allow() {
    return cudaFuncSetAttribute(backward_kernel<T, Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                Shape::kSharedBytes);
  }

  static cudaError_t launch(const BackwardPlan& plan, cudaStream_t stream) {
    const long long pieces = plan.rows.all_rows * (kHeadDim / 8);
    backward_rows_kernel<T, kHeadDim><<<static_cast<unsigned>((pieces + 255) / 256), 256, 0, stream>>>(plan.rows);
    backward_kernel<T, Shape><<<static_cast<unsigned>(plan.grid), Shape::kThreads, Shape::kSharedBytes, stream>>>(
        plan.q, plan.k, plan.v, plan.dout, plan.params);
    if (plan.unseen) {
      backward_unseen_kernel<kHeadDim, kTileM>
          <<<static_cast<unsigned>(plan.params.tiles), kBackwardKeys, 0, stream>>>(plan.params);
    }
    const long long slices = plan.rows.all_rows * kHeadDim / kSliceFloats;
    backward_convert_kernel<T, kHeadDim, kTileM><<<static_cast<unsigned>(slices), 128, 0, stream>>>(plan.convert);
    return cudaGetLastError();
  }
};

template <int kHeadDim, int kTileM>
constexpr BackwardInstance backward_instance() {
  using Fast = BackwardShape<kHeadDim, kTileM, false>;
  using Ordered = BackwardShape<kHeadDim, kTileM, true>;
  return {kHeadDim,
          kTileM,
          {&Backward<__nv_bfloat16, Fast>::allow, &Backward<__nv_bfloat16, Fast>::launch},
          {&Backward<__half, Fast>::allow, &Backward<__half, Fast>::launch},
          {&Backward<__nv_bfloat16, Ordered>::allow, &Backward<__nv_bfloat16, Ordered>::launch},
          {&Backward<__half, Ordered>::allow, &Backward<__half, Ordered>::launch}};
}

}  // namespace attnbench::kernels::hopper
