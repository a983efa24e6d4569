// The row kernels between the cuBLAS products of blas.cpp.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/blas_rows.hpp"
#include "kernels/cuda/element.cuh"

namespace attnbench::kernels {
namespace {

constexpr std::int64_t kMaxBlocks = 1 << 20;  // kernels stride over their rows, so any number of blocks will do
constexpr std::int64_t kWarpRow = 1024;       // up to this many keys one warp has a row, above it a block

/// Joins over the threads that share a row: a warp, or the whole block.
template <bool kWarp, typename Op>
__device__ float row_reduce(float value) {
  if constexpr (kWarp) {
    for (int offset = 16; offset > 0; offset /= 2) value = Op::join(value, __shfl_xor_sync(~0u, value, offset));
    return value;
  } else {
    return block_reduce<Op>(value);
  }
}

template <bool kWarp>
struct RowPlace {
  static constexpr int kWidth = kWarp ? 32 : kRowThreads;
  static constexpr int kRows = kRowThreads / kWidth;
  __device__ static std::int64_t first() {
    return static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kWidth;
  }
  __device__ static std::int64_t step() { return static_cast<std::int64_t>(gridDim.x) * kRows; }
  __device__ static int lane() { return threadIdx.x % kWidth; }
};

template <typename T>
__device__ void zero_masked(T* row, KeyRange range, std::int64_t length, int lane, int width) {
  for (std::int64_t j = lane; j < range.begin; j += width) row[j] = narrow<T>(0.0f);
  for (std::int64_t j = std::max(range.begin, range.end) + lane; j < length; j += width) row[j] = narrow<T>(0.0f);
}

template <bool kWarp, typename T>
__global__ void softmax_rows(Problem p, const float* scores, T* weights, float* lse) {
  using Place = RowPlace<kWarp>;
  const std::int64_t total = p.batch * p.heads * p.seq_q;
  const int lane = Place::lane();
  for (std::int64_t row = Place::first(); row < total; row += Place::step()) {
    const KeyRange range = visible_keys(p, row % p.seq_q);
    const float* s = scores + row * p.seq_k;
    T* w = weights + row * p.seq_k;
    float largest = -INFINITY;
    for (std::int64_t j = range.begin + lane; j < range.end; j += Place::kWidth) {
      largest = fmaxf(largest, saturated(s[j]));
    }
    largest = row_reduce<kWarp, Largest>(largest);
    float sum = 0.0f;
    for (std::int64_t j = range.begin + lane; j < range.end; j += Place::kWidth) {
      sum += expf(saturated(s[j]) - largest);
    }
    sum = row_reduce<kWarp, Sum>(sum);
    const float inverse = 1.0f / sum;
    for (std::int64_t j = range.begin + lane; j < range.end; j += Place::kWidth) {
      w[j] = narrow<T>(expf(saturated(s[j]) - largest) * inverse);
    }
    zero_masked(w, range, p.seq_k, lane, Place::kWidth);
    if (lane == 0) lse[row] = range.count() > 0 ? largest + logf(sum) : -INFINITY;
  }
}

template <bool kWarp, typename T>
__global__ void softmax_gradient_rows(Problem p, const T* weights, const float* dp, T* ds) {
  using Place = RowPlace<kWarp>;
  const std::int64_t total = p.batch * p.heads * p.seq_q;
  const int lane = Place::lane();
  for (std::int64_t row = Place::first(); row < total; row += Place::step()) {
    const KeyRange range = visible_keys(p, row % p.seq_q);
    const T* w = weights + row * p.seq_k;
    const float* g = dp + row * p.seq_k;
    T* out = ds + row * p.seq_k;
    float delta = 0.0f;
    float total = 0.0f;
    for (std::int64_t j = range.begin + lane; j < range.end; j += Place::kWidth) {
      delta += widen(w[j]) * g[j];
      total += widen(w[j]);
    }
    delta = row_reduce<kWarp, Sum>(delta);
    total = row_reduce<kWarp, Sum>(total);
    // Weights rounded to 16 bits sum to 1 within 2^-9 only. Their own mean makes the ds of a row sum to zero; without
    // it, large keys or queries multiply what is left (attention_large_logits, bf16, dk: 0.036 instead of 0.004).
    if (total > 0.0f) delta /= total;
    for (std::int64_t j = range.begin + lane; j < range.end; j += Place::kWidth) {
      out[j] = narrow<T>(widen(w[j]) * (g[j] - delta) * p.scale);
    }
    zero_masked(out, range, p.seq_k, lane, Place::kWidth);
  }
}

struct Repairs {
  BlasRepair job[3];
};

template <typename T>
__device__ float visible_product(const Problem& p, const BlasRepair& job, std::int64_t index) {
  const T* matrix = static_cast<const T*>(job.matrix);
  const T* operand = static_cast<const T*>(job.operand);
  const std::int64_t group = p.heads / p.kv_heads;
  const std::int64_t d = index % p.head_dim;
  const std::int64_t row = index / p.head_dim;  // of [B, H, Sq], or of [B, Hkv, Sk]
  float sum = 0.0f;
  if (job.transposed) {
    const std::int64_t j = row % p.seq_k;
    const std::int64_t kv = row / p.seq_k;  // counted over the batch, as query heads are below
    const KeyRange range = visible_queries(p, j);
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        const std::int64_t at = h * p.seq_q + i;
        sum += widen(matrix[at * p.seq_k + j]) * widen(operand[at * p.head_dim + d]);
      }
    }
    return sum;
  }
  const std::int64_t kv = row / p.seq_q / group;
  const KeyRange range = visible_keys(p, row % p.seq_q);
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    sum += widen(matrix[row * p.seq_k + j]) * widen(operand[(kv * p.seq_k + j) * p.head_dim + d]);
  }
  return sum;
}

template <typename T>
__global__ void repair(Problem p, Repairs repairs) {
  const BlasRepair job = repairs.job[blockIdx.y];
  const std::int64_t rows = job.transposed ? p.batch * p.kv_heads * p.seq_k : p.batch * p.heads * p.seq_q;
  T* out = static_cast<T*>(job.out);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; index < rows * p.head_dim;
       index += step) {
    if (isnan(widen(out[index]))) out[index] = narrow<T>(visible_product<T>(p, job, index));
  }
}

/// Calls `call` with true_type where a warp has a row, and the number of blocks for that.
template <typename F>
void with_row_width(const Problem& p, F&& call) {
  const std::int64_t rows = p.batch * p.heads * p.seq_q;
  if (rows == 0) return;
  const bool warp = p.seq_k <= kWarpRow;
  const std::int64_t blocks = warp ? (rows + RowPlace<true>::kRows - 1) / RowPlace<true>::kRows : rows;
  const auto grid = static_cast<unsigned>(std::min(blocks, kMaxBlocks));
  if (warp) {
    call(std::true_type{}, grid);
  } else {
    call(std::false_type{}, grid);
  }
}

}  // namespace

cudaError_t launch_blas_softmax(const Problem& p, const float* scores, void* weights, float* lse, cudaStream_t stream) {
  with_element(p.dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    with_row_width(p, [&](auto warp, unsigned grid) {
      softmax_rows<decltype(warp)::value, T>
          <<<grid, kRowThreads, 0, stream>>>(p, scores, static_cast<T*>(weights), lse);
    });
  });
  return cudaGetLastError();
}

cudaError_t launch_blas_softmax_gradient(const Problem& p, const void* weights, const float* dp, void* ds,
                                         cudaStream_t stream) {
  with_element(p.dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    with_row_width(p, [&](auto warp, unsigned grid) {
      softmax_gradient_rows<decltype(warp)::value, T>
          <<<grid, kRowThreads, 0, stream>>>(p, static_cast<const T*>(weights), dp, static_cast<T*>(ds));
    });
  });
  return cudaGetLastError();
}

cudaError_t launch_blas_repair(const Problem& p, const BlasRepair* repairs, int count, cudaStream_t stream) {
  Repairs jobs;
  std::int64_t items = 0;
  for (int i = 0; i < count; ++i) {
    jobs.job[i] = repairs[i];
    const std::int64_t rows = repairs[i].transposed ? p.batch * p.kv_heads * p.seq_k : p.batch * p.heads * p.seq_q;
    items = std::max(items, rows * p.head_dim);
  }
  if (items == 0 || p.kv_heads == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(std::min((items + 255) / 256, kMaxBlocks)), static_cast<unsigned>(count));
  with_element(p.dtype, [&](auto* element) {
    repair<std::remove_pointer_t<decltype(element)>><<<grid, 256, 0, stream>>>(p, jobs);
  });
  return cudaGetLastError();
}

}  // namespace attnbench::kernels
