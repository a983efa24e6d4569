// Forward, head dimension 256 (and below, padded).
#include "kernels/cuda/flash_fwd_launch.cuh"

namespace attnbench::kernels::flash_cuda {
template cudaError_t launch_forward<256>(const FwdParams&, Kind, int, cudaStream_t);
}  // namespace attnbench::kernels::flash_cuda
