// The Hopper forward for head_dim 16 and 32.
#include "kernels/cuda/hopper/forward_instance.cuh"

namespace attnbench::kernels::hopper {

std::span<const ForwardInstance> forward_d16() {
  static constexpr ForwardInstance kRows[] = {
      forward_instance<ForwardShape<16, 3, 128, 2, 2, true, true>, false>(0),
      forward_instance<ForwardShape<16, 3, 128, 2, 2, true, true>, true>(0),
      forward_instance<ForwardShape<16, 1, 128, 3, 2, false, true>, true>(0, kOneWave),
  };
  return kRows;
}

std::span<const ForwardInstance> forward_d32() {
  static constexpr ForwardInstance kRows[] = {
      forward_instance<ForwardShape<32, 3, 128, 2, 2, true, true>, false>(0),
      forward_instance<ForwardShape<32, 3, 128, 2, 2, true, true>, true>(0),
      forward_instance<ForwardShape<32, 1, 128, 3, 2, false, true>, true>(0, kOneWave),
  };
  return kRows;
}

}  // namespace attnbench::kernels::hopper
