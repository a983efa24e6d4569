// The row kernels between the cuBLAS products of blas.cpp. All matrices are dense.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/problem.hpp"

namespace attnbench::kernels {

/// weights [B, H, Sq, Sk] in the problem's dtype from scores [B, H, Sq, Sk] in fp32 (the same memory when that is
/// fp32); masked positions become 0. lse [B, H, Sq].
cudaError_t launch_blas_softmax(const Problem& p, const float* scores, void* weights, float* lse, cudaStream_t stream);

/// ds = weights * (dp - mean of dp by weight) * scale in the problem's dtype; dp in fp32 (the same memory as ds when
/// that is fp32); masked positions become 0.
cudaError_t launch_blas_softmax_gradient(const Problem& p, const void* weights, const float* dp, void* ds,
                                         cudaStream_t stream);

/// A product that a GEMM made over masked positions too: 0 times NaN or infinity there is NaN.
///
/// Shapes  matrix [B, H, Sq, Sk]
///         transposed: out [B, Hkv, Sk, D] = matrix^T operand, operand [B, H, Sq, D]
///         else        out [B, H, Sq, D]   = matrix operand,   operand [B, Hkv, Sk, D]
struct BlasRepair {
  const void* matrix = nullptr;
  const void* operand = nullptr;
  void* out = nullptr;
  bool transposed = false;
};

/// Computes every NaN of the `count` (up to 3) products again from visible positions alone. Costs one read of `out`
/// where there is none.
cudaError_t launch_blas_repair(const Problem& p, const BlasRepair* repairs, int count, cudaStream_t stream);

}  // namespace attnbench::kernels
