// Mean cross-entropy over a vocabulary: one pass over the logits forward, one backward, in place.
#include "kernels/cuda/layer_launch.hpp"
#include "kernels/cuda/pack.cuh"

namespace attnbench::kernels {
namespace {

constexpr int kMeanThreads = 1024;

/// The largest of some values and the sum of their exponentials, relative to it.
struct Running {
  float most = -INFINITY;
  float sum = 0.0f;

  __device__ void add(float value) {
    if (value > most) {
      sum = sum * expf(most - value) + 1.0f;
      most = value;
    } else {
      sum += value == most ? 1.0f : expf(value - most);  // equal infinities are no difference; NaN stays
    }
  }
};

/// A block has a row. The order of additions is fixed.
template <typename T, int kCount>
__global__ void __launch_bounds__(kRowThreads) cross_entropy(CrossEntropy c) {
  const std::int64_t row = blockIdx.x;
  const T* const logits = static_cast<const T*>(c.logits) + row * c.vocab;
  Running mine;
  for (std::int64_t j = threadIdx.x * kCount; j < c.vocab; j += kRowThreads * kCount) {
    const auto v = load<T, kCount>(logits + j);
    for (int i = 0; i < kCount; ++i) mine.add(widen(v.at[i]));
  }
  const float most = block_reduce<Largest>(mine.most);
  const float sum = block_reduce<Sum>(mine.most == most ? mine.sum : mine.sum * expf(mine.most - most));
  if (threadIdx.x == 0) c.lse[row] = most + logf(sum);
}

/// One block: the mean, in double.
template <typename T>
__global__ void __launch_bounds__(kMeanThreads) mean_loss(CrossEntropy c, IdFault* fault) {
  __shared__ double sums[kMeanThreads];
  double sum = 0.0;
  for (std::int64_t row = threadIdx.x; row < c.rows; row += kMeanThreads) {
    const int target = c.targets[row];
    if (target < 0 || target >= c.vocab) {
      *fault = {target, static_cast<int>(row), static_cast<int>(c.vocab), 1};
      sum = NAN;
      continue;
    }
    const float logit = widen(static_cast<const T*>(c.logits)[row * c.vocab + target]);
    sum += static_cast<double>(c.lse[row]) - static_cast<double>(logit);
  }
  sums[threadIdx.x] = sum;
  for (int half = kMeanThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *c.loss = static_cast<float>(sums[0] / static_cast<double>(c.rows));
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kRowThreads) cross_entropy_backward(CrossEntropyBackward c) {
  const std::int64_t row = blockIdx.x;
  T* const logits = static_cast<T*>(c.logits) + row * c.vocab;
  const float lse = c.lse[row], scale = c.scale / static_cast<float>(c.rows);
  const std::int64_t target = c.targets[row];
  for (std::int64_t j = threadIdx.x * kCount; j < c.vocab; j += kRowThreads * kCount) {
    auto v = load<T, kCount>(logits + j);
    for (int i = 0; i < kCount; ++i) {
      v.at[i] = narrow<T>(scale * (expf(widen(v.at[i]) - lse) - (j + i == target ? 1.0f : 0.0f)));
    }
    store(logits + j, v);
  }
}

}  // namespace

cudaError_t launch(const CrossEntropy& c, IdFault* fault, cudaStream_t stream) {
  if (c.rows == 0) return cudaSuccess;
  const auto packed = [&](auto* element) { return packs<std::remove_pointer_t<decltype(element)>>(c.vocab, c.logits); };
  return with_pack(c.dtype, packed, [&](auto* element, auto count) {
    using T = std::remove_pointer_t<decltype(element)>;
    cross_entropy<T, count.value><<<static_cast<unsigned>(c.rows), kRowThreads, 0, stream>>>(c);
    const cudaError_t code = cudaGetLastError();
    if (code != cudaSuccess) return code;
    mean_loss<T><<<1, kMeanThreads, 0, stream>>>(c, fault);
    return cudaGetLastError();
  });
}

cudaError_t launch(const CrossEntropyBackward& c, cudaStream_t stream) {
  if (c.rows == 0) return cudaSuccess;
  const auto packed = [&](auto* element) { return packs<std::remove_pointer_t<decltype(element)>>(c.vocab, c.logits); };
  return with_pack(c.dtype, packed, [&](auto* element, auto count) {
    cross_entropy_backward<std::remove_pointer_t<decltype(element)>, count.value>
        <<<static_cast<unsigned>(c.rows), kRowThreads, 0, stream>>>(c);
    return cudaGetLastError();
  });
}

}  // namespace attnbench::kernels
