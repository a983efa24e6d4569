// Host-side entry points of the flash kernels. Each head dimension is instantiated in its own small source file, so
// that they compile in parallel.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/flash_config.cuh"
#include "kernels/cuda/flash_params.cuh"

namespace attnbench::kernels::flash_cuda {

/// Launches the forward instance of width D. `variant`: row of fwd_config.
template <int D>
cudaError_t launch_forward(const FwdParams& params, Kind kind, int variant, cudaStream_t stream);

/// Launches the dK/dV kernel of width D, which also adds to dq_sum when that is not null.
template <int D>
cudaError_t launch_backward_kv(const BwdParams& params, Kind kind, int variant, cudaStream_t stream);

/// Launches the dQ kernel of width D: no atomics, so bitwise equal from run to run.
template <int D>
cudaError_t launch_backward_q(const BwdParams& params, Kind kind, int variant, cudaStream_t stream);

/// The element type of the problem's tensors: 0 fp32, 1 bf16, 2 fp16.
enum class Storage : int { kFp32, kBf16, kFp16 };

/// Packs inputs and computes row statistics, in one launch.
cudaError_t launch_prepare(const PrepareParams& params, Storage storage, cudaStream_t stream);

/// Turns dq_sum into dq.
cudaError_t launch_convert(const ConvertParams& params, Storage storage, cudaStream_t stream);

/// Raises the kernel's shared-memory limit if needed, then launches it over `blocks` tiles.
template <typename Kernel, typename Params>
cudaError_t launch_tiles(Kernel kernel, const Params& params, std::int64_t blocks, int threads, int shared_bytes,
                         cudaStream_t stream) {
  if (blocks == 0) return cudaSuccess;
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (error != cudaSuccess) return error;
  }
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace attnbench::kernels::flash_cuda
