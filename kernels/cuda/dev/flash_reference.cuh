// Double-precision attention on the GPU for the developer's benchmark: obvious, and fast enough for the grids it
// checks.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/dev/bench_tools.cuh"
#include "kernels/problem.hpp"

namespace attnbench::dev {

/// Sizes and mask, as kernels::Problem has them, in a form device code takes by value.
struct ReferenceProblem {
  std::int64_t heads, kv_heads, seq_q, seq_k, head_dim;
  int causal;
  std::int64_t window;
  double scale;
};

__device__ inline bool visible(const ReferenceProblem& p, std::int64_t query, std::int64_t key) {
  const std::int64_t diagonal = query + p.seq_k - p.seq_q;
  if (p.causal && key > diagonal) return false;
  return p.window < 0 || key >= diagonal - p.window;
}

__device__ inline double dot(const float* a, const float* b, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

__device__ inline double block_sum(double x, double* scratch) {
  scratch[threadIdx.x] = x;
  __syncthreads();
  for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) scratch[threadIdx.x] += scratch[threadIdx.x + step];
    __syncthreads();
  }
  const double total = scratch[0];
  __syncthreads();
  return total;
}

__device__ inline double block_max(double x, double* scratch) {
  scratch[threadIdx.x] = x;
  __syncthreads();
  for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) scratch[threadIdx.x] = fmax(scratch[threadIdx.x], scratch[threadIdx.x + step]);
    __syncthreads();
  }
  const double top = scratch[0];
  __syncthreads();
  return top;
}

/// One block per query row: o, lse; with dout also delta and dq. Shared: 2 * seq_k doubles.
__global__ void reference_rows(ReferenceProblem p, const float* q, const float* k, const float* v, const float* dout,
                               double* o, double* lse, double* delta, double* dq) {
  extern __shared__ double weights[];
  __shared__ double scratch[128];
  const std::int64_t row = blockIdx.x;
  const std::int64_t head = row / p.seq_q;
  const std::int64_t query = row - head * p.seq_q;
  const std::int64_t kv = (head / p.heads) * p.kv_heads + (head % p.heads) / (p.heads / p.kv_heads);
  const float* keys = k + kv * p.seq_k * p.head_dim;
  const float* values = v + kv * p.seq_k * p.head_dim;
  double top = -INFINITY;
  for (std::int64_t j = threadIdx.x; j < p.seq_k; j += blockDim.x) {
    const double s =
        visible(p, query, j) ? p.scale * dot(q + row * p.head_dim, keys + j * p.head_dim, p.head_dim) : -INFINITY;
    weights[j] = s;
    top = fmax(top, s);
  }
  top = block_max(top, scratch);
  double sum = 0.0;
  for (std::int64_t j = threadIdx.x; j < p.seq_k; j += blockDim.x) {
    weights[j] = top == -INFINITY ? 0.0 : exp(weights[j] - top);
    sum += weights[j];
  }
  sum = block_sum(sum, scratch);
  for (std::int64_t c = threadIdx.x; c < p.head_dim; c += blockDim.x) {
    double x = 0.0;
    for (std::int64_t j = 0; j < p.seq_k; ++j) {
      if (weights[j] != 0.0) x += weights[j] * values[j * p.head_dim + c];
    }
    o[row * p.head_dim + c] = sum > 0.0 ? x / sum : 0.0;
  }
  if (threadIdx.x == 0) lse[row] = sum > 0.0 ? top + log(sum) : -INFINITY;
  __syncthreads();
  double part = 0.0;
  for (std::int64_t c = threadIdx.x; c < p.head_dim; c += blockDim.x) {
    part += o[row * p.head_dim + c] * dout[row * p.head_dim + c];
  }
  const double d = block_sum(part, scratch);
  if (threadIdx.x == 0) delta[row] = d;
  for (std::int64_t j = threadIdx.x; j < p.seq_k; j += blockDim.x) {
    if (weights[j] == 0.0) continue;
    weights[j] = weights[j] / sum * (dot(dout + row * p.head_dim, values + j * p.head_dim, p.head_dim) - d);
  }
  __syncthreads();
  for (std::int64_t c = threadIdx.x; c < p.head_dim; c += blockDim.x) {
    double x = 0.0;
    for (std::int64_t j = 0; j < p.seq_k; ++j) {
      if (weights[j] != 0.0) x += weights[j] * keys[j * p.head_dim + c];
    }
    dq[row * p.head_dim + c] = p.scale * x;
  }
}

/// One block per key row: dk, dv, summed over the group. Shared: 2 * seq_q doubles.
__global__ void reference_columns(ReferenceProblem p, const float* q, const float* k, const float* v, const float* dout,
                                  const double* lse, const double* delta, double* dk, double* dv) {
  extern __shared__ double weights[];
  double* gradients = weights + p.seq_q;
  const std::int64_t row = blockIdx.x;
  const std::int64_t kv = row / p.seq_k;
  const std::int64_t key = row - kv * p.seq_k;
  const std::int64_t group = p.heads / p.kv_heads;
  for (std::int64_t c = threadIdx.x; c < p.head_dim; c += blockDim.x)
    dk[row * p.head_dim + c] = dv[row * p.head_dim + c] = 0;
  for (std::int64_t member = 0; member < group; ++member) {
    const std::int64_t head = (kv / p.kv_heads) * p.heads + (kv % p.kv_heads) * group + member;
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < p.seq_q; i += blockDim.x) {
      weights[i] = gradients[i] = 0.0;
      if (!visible(p, i, key)) continue;
      const std::int64_t at = head * p.seq_q + i;
      weights[i] = exp(p.scale * dot(q + at * p.head_dim, k + row * p.head_dim, p.head_dim) - lse[at]);
      gradients[i] = weights[i] * (dot(dout + at * p.head_dim, v + row * p.head_dim, p.head_dim) - delta[at]);
    }
    __syncthreads();
    for (std::int64_t c = threadIdx.x; c < p.head_dim; c += blockDim.x) {
      double x = 0.0;
      double y = 0.0;
      for (std::int64_t i = 0; i < p.seq_q; ++i) {
        const std::int64_t at = (head * p.seq_q + i) * p.head_dim + c;
        x += gradients[i] * q[at];
        y += weights[i] * dout[at];
      }
      dk[row * p.head_dim + c] += p.scale * x;
      dv[row * p.head_dim + c] += y;
    }
  }
}

struct ReferenceInputs {
  const float *q, *k, *v, *dout;
};

struct ReferenceOutputs {
  double *o, *lse, *delta, *dq, *dk, *dv;
};

/// Both, for a whole problem of dense tensors on the default stream.
inline void run_reference(const kernels::Problem& p, const ReferenceInputs& in, const ReferenceOutputs& out) {
  const ReferenceProblem r{p.heads, p.kv_heads, p.seq_q, p.seq_k, p.head_dim, p.causal ? 1 : 0, p.window_left, p.scale};
  const std::int64_t rows = p.batch * p.heads * p.seq_q, keys = p.batch * p.kv_heads * p.seq_k;
  const int shared = static_cast<int>(std::max(p.seq_q, p.seq_k) * 16);
  CHECK_CUDA(cudaFuncSetAttribute(reference_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  CHECK_CUDA(cudaFuncSetAttribute(reference_columns, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  if (rows > 0) {
    reference_rows<<<static_cast<unsigned>(rows), 128, shared>>>(r, in.q, in.k, in.v, in.dout, out.o, out.lse,
                                                                 out.delta, out.dq);
  }
  if (keys > 0) {
    reference_columns<<<static_cast<unsigned>(keys), 128, shared>>>(r, in.q, in.k, in.v, in.dout, out.lse, out.delta,
                                                                    out.dk, out.dv);
  }
  CHECK_CUDA(cudaGetLastError());
}

}  // namespace attnbench::dev
