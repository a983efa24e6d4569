// Element types of the plain CUDA kernels, and how they become floats.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/dtype.hpp"

namespace attnbench::kernels {

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float widen(__half value) { return __half2float(value); }

template <typename T>
__device__ T narrow(float value);
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16(value);
}
template <>
__device__ inline __half narrow<__half>(float value) {
  return __float2half(value);
}

/// A logit as the kernels keep it: an overflowed one saturates, so that no infinity is subtracted from another; NaN
/// stays.
__device__ inline float saturated(float logit) {
  constexpr float kLargest = 3.402823466e+38f;
  return logit > kLargest ? kLargest : (logit < -kLargest ? -kLargest : logit);
}

/// Calls `call` with a null pointer of the device type that stores `dtype`.
template <typename F>
auto with_element(Dtype dtype, F&& call) {
  if (dtype == Dtype::kBf16) return call(static_cast<__nv_bfloat16*>(nullptr));
  if (dtype == Dtype::kFp16) return call(static_cast<__half*>(nullptr));
  return call(static_cast<float*>(nullptr));
}

/// Threads of a block that handles one row; a multiple of the warp, for block_reduce.
constexpr int kRowThreads = 256;

struct Largest {
  __device__ static float identity() { return -INFINITY; }
  __device__ static float join(float a, float b) { return fmaxf(a, b); }  // skips NaN: the sum that follows does not
};
struct Sum {
  __device__ static float identity() { return 0.0f; }
  __device__ static float join(float a, float b) { return a + b; }
};

/// The same value in every thread of a block of kRowThreads. The order of additions is fixed.
template <typename Op>
__device__ float block_reduce(float value) {
  __shared__ float partial[kRowThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value = Op::join(value, __shfl_xor_sync(~0u, value, offset));
  __syncthreads();  // the previous reduction's readers are done
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = Op::identity();
  for (int i = 0; i < kRowThreads / 32; ++i) value = Op::join(value, partial[i]);
  return value;
}

}  // namespace attnbench::kernels
