// The wgmma backward for head_dim 96.
#include "kernels/cuda/hopper/backward_instance.cuh"
#include "kernels/cuda/hopper/backward_kernel.cuh"

namespace attnbench::kernels::hopper {

extern const BackwardInstance kBackwardD96 =
    backward_instance<BackwardShape<96, 64, false>, BackwardShape<96, 64, true>>();

}  // namespace attnbench::kernels::hopper
