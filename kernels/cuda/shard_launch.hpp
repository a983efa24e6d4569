// Launchers of the sharding operations.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/shard_ops.hpp"

namespace attnbench::kernels {

/// Partial sums of a squared norm: one double each.
inline constexpr int kNormBlocks = 1024;

cudaError_t launch(const Cast& call, cudaStream_t stream);
cudaError_t launch(const OrderedSum& call, cudaStream_t stream);
cudaError_t launch(const FillNan& call, cudaStream_t stream);
cudaError_t launch(const WriteNumbers& call, double* partial, cudaStream_t stream);
cudaError_t launch(const Judge& call, cudaStream_t stream);
cudaError_t launch(const Update& call, cudaStream_t stream);

}  // namespace attnbench::kernels
