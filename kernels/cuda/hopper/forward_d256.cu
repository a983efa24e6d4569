// The Hopper forward for head_dim 256.
#include "kernels/cuda/hopper/forward_instance.cuh"

namespace attnbench::kernels::hopper {

std::span<const ForwardInstance> forward_d256() {
  static constexpr ForwardInstance kRows[] = {
      forward_instance<ForwardShape<256, 2, 64, 2, 1, false, false>, false>(0),
      forward_instance<ForwardShape<256, 2, 80, 2, 1, false, false>, false>(1024),
      forward_instance<ForwardShape<256, 2, 64, 2, 1, false, false>, true>(0),
  };
  return kRows;
}

}  // namespace attnbench::kernels::hopper
