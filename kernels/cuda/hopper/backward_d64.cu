// The wgmma backward for head_dim 64.
#include "kernels/cuda/hopper/backward_instance.cuh"

namespace attnbench::kernels::hopper {

extern const BackwardInstance kBackwardD64 = backward_instance<64, 128>();

}  // namespace attnbench::kernels::hopper
