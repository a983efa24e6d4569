// The Hopper forward for head_dim 96 and 192.
#include "kernels/cuda/hopper/forward_instance.cuh"

namespace attnbench::kernels::hopper {

std::span<const ForwardInstance> forward_d96() {
  static constexpr ForwardInstance kRows[] = {
      forward_instance<ForwardShape<96, 2, 128, 2, 2, true, true>, false>(0),
      forward_instance<ForwardShape<96, 2, 128, 2, 2, true, true>, true>(0),
  };
  return kRows;
}

std::span<const ForwardInstance> forward_d192() {
  static constexpr ForwardInstance kRows[] = {
      forward_instance<ForwardShape<192, 2, 80, 2, 2, true, true>, false>(0),
      forward_instance<ForwardShape<192, 2, 80, 2, 2, true, true>, true>(0),
  };
  return kRows;
}

}  // namespace attnbench::kernels::hopper
