// The wgmma backward for head_dim 128.
#include "kernels/cuda/hopper/backward_instance.cuh"

namespace attnbench::kernels::hopper {

extern const BackwardInstance kBackwardD128 = backward_instance<128, 64>();

}  // namespace attnbench::kernels::hopper
