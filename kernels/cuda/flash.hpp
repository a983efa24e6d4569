// The flash kernel of the CUDA backend, and the knobs that its developer's benchmark turns.
#pragma once

#include <memory>

#include "kernels/kernel.hpp"

namespace attnbench::kernels {

/// Tiled attention on tensor cores, forward and backward; see kernels/cuda/flash.cu.
const KernelInfo& cuda_flash();

/// Rows of the tile table to use instead of the table's own choice; -1: its choice.
struct FlashTuning {
  int forward_variant = -1;
  int backward_variant = -1;
  bool fold = true;  // pair long tiles with short ones
};

/// KernelInfo::prepare with the tile choice overridden: for timing one variant against another.
base::Result<std::unique_ptr<PreparedKernel>> prepare_cuda_flash(const AttentionArgs& args, Device& device,
                                                                 const FlashTuning& tuning);

}  // namespace attnbench::kernels
