// Backward, head dimension 128 (and below, padded).
#include "kernels/cuda/flash_bwd_launch.cuh"

namespace attnbench::kernels::flash_cuda {
template cudaError_t launch_backward_kv<128>(const BwdParams&, Kind, int, cudaStream_t);
template cudaError_t launch_backward_q<128>(const BwdParams&, Kind, int, cudaStream_t);
}  // namespace attnbench::kernels::flash_cuda
