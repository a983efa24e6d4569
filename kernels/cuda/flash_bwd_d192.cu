// Backward, head dimension 192 (and below, padded).
#include "kernels/cuda/flash_bwd_launch.cuh"

namespace attnbench::kernels::flash_cuda {
template cudaError_t launch_backward_kv<192>(const BwdParams&, Kind, int, cudaStream_t);
template cudaError_t launch_backward_q<192>(const BwdParams&, Kind, int, cudaStream_t);
}  // namespace attnbench::kernels::flash_cuda
