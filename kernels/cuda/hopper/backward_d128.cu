// The wgmma backward for head_dim 128.
#include "kernels/cuda/hopper/backward_instance.cuh"
#include "kernels/cuda/hopper/backward_kernel.cuh"

namespace attnbench::kernels::hopper {

extern const BackwardInstance kBackwardD128 =
    backward_instance<BackwardShape<128, 64, false>, BackwardShape<128, 64, true>>();

}  // namespace attnbench::kernels::hopper
