// The wgmma backward for head_dim 16 and 32, whose tiles lie in shared memory 64 columns wide.
#include "kernels/cuda/hopper/backward_instance.cuh"
#include "kernels/cuda/hopper/backward_kernel.cuh"

namespace attnbench::kernels::hopper {

extern const BackwardInstance kBackwardD16 =
    backward_instance<BackwardShape<16, 128, false>, BackwardShape<16, 128, true>>();
extern const BackwardInstance kBackwardD32 =
    backward_instance<BackwardShape<32, 128, false>, BackwardShape<32, 128, true>>();

}  // namespace attnbench::kernels::hopper
