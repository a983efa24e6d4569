// The wgmma backward for head_dim 192.
#include "kernels/cuda/hopper/backward_instance.cuh"
#include "kernels/cuda/hopper/backward_wide.cuh"

namespace attnbench::kernels::hopper {

extern const BackwardInstance kBackwardD192 = backward_instance<WideShape<192, false>, WideShape<192, true>>();

}  // namespace attnbench::kernels::hopper
