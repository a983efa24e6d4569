// What the plug-in's sources show each other: versions of the vendor libraries, and what its backend offers to layers.
#pragma once

#include <memory>
#include <string>

#include "kernels/gemm.hpp"
#include "kernels/layer_ops.hpp"
#include "kernels/shard_ops.hpp"

namespace attnbench::kernels {

std::string cublas_version();
/// Empty when libcudnn.so.9 cannot be opened. Opens it.
std::string cudnn_version();

const GemmLibrary& cuda_gemm();
base::Result<std::unique_ptr<LayerOps>> cuda_layer_ops(Device& device);
base::Result<std::unique_ptr<ShardOps>> cuda_shard_ops(Device& device);

}  // namespace attnbench::kernels
