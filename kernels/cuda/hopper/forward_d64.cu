// The Hopper forward for head_dim 64.
#include "kernels/cuda/hopper/forward_instance.cuh"

namespace attnbench::kernels::hopper {

std::span<const ForwardInstance> forward_d64() {
  static constexpr ForwardInstance kRows[] = {
      forward_instance<ForwardShape<64, 3, 128, 2, 2, true, true>, false>(0),
      forward_instance<ForwardShape<64, 2, 128, 3, 2, true, true>, true>(0),
      forward_instance<ForwardShape<64, 3, 96, 2, 2, true, true>, true>(2048),
      forward_instance<ForwardShape<64, 1, 128, 3, 2, false, true>, true>(0, kOneWave),
  };
  return kRows;
}

}  // namespace attnbench::kernels::hopper
