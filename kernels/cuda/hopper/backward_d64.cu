// The wgmma backward for head_dim 64.
#include "kernels/cuda/hopper/backward_instance.cuh"
#include "kernels/cuda/hopper/backward_kernel.cuh"

namespace attnbench::kernels::hopper {

extern const BackwardInstance kBackwardD64 =
    backward_instance<BackwardShape<64, 128, false>, BackwardShape<64, 128, true>>();

}  // namespace attnbench::kernels::hopper
