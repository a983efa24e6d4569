// The Hopper forward for head_dim 128.
#include "kernels/cuda/hopper/forward_instance.cuh"

namespace attnbench::kernels::hopper {

std::span<const ForwardInstance> forward_d128() {
  static constexpr ForwardInstance kRows[] = {
      forward_instance<ForwardShape<128, 2, 128, 2, 2, false, true>, false>(0),
      forward_instance<ForwardShape<128, 2, 128, 2, 2, true, true>, true>(0),
  };
  return kRows;
}

}  // namespace attnbench::kernels::hopper
