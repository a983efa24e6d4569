// The wgmma backward for head_dim 256.
#include "kernels/cuda/hopper/backward_instance.cuh"
#include "kernels/cuda/hopper/backward_wide.cuh"

namespace attnbench::kernels::hopper {

extern const BackwardInstance kBackwardD256 = backward_instance<WideShape<256, false>, WideShape<256, true>>();

}  // namespace attnbench::kernels::hopper
