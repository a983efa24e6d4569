// Casts, ordered sums, the norm of a gradient and the optimizer: each element is read and written once.
#include <algorithm>

#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/shard_launch.hpp"

namespace attnbench::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kMostParts = 64;     // of a sum in one launch
constexpr double kClipEps = 1e-6;  // as is custom: min(1, clip / (norm + 1e-6))

unsigned blocks_for(std::int64_t items) { return static_cast<unsigned>((items + kThreads - 1) / kThreads); }

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

/// Each thread has kCount elements; where they are many, the last thread of all may have fewer.
template <typename To, typename From, int kCount>
__global__ void __launch_bounds__(kThreads) cast(To* to, const From* from, std::int64_t count) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (i + kCount <= count) {
    Pack<To, kCount> out;
    const auto in = load<From, kCount>(from + i);
    for (int j = 0; j < kCount; ++j) out.at[j] = narrow<To>(widen(in.at[j]));
    store(to + i, out);
  } else {
    for (std::int64_t j = i; j < count; ++j) to[j] = narrow<To>(widen(from[j]));
  }
}

struct Parts {
  const void* at[kMostParts];
  int count;
};

template <typename Wire, int kCount>
__global__ void __launch_bounds__(kThreads) ordered_sum(float* out, bool accumulate, Parts parts, std::int64_t count) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (i >= count) return;
  const int here = static_cast<int>(min(static_cast<std::int64_t>(kCount), count - i));
  float sum[kCount];
  for (int part = 0; part < parts.count; ++part) {
    const Wire* const from = static_cast<const Wire*>(parts.at[part]) + i;
    Pack<Wire, kCount> v{};
    if (here == kCount) {
      v = load<Wire, kCount>(from);
    } else {
      for (int j = 0; j < here; ++j) v.at[j] = from[j];
    }
    for (int j = 0; j < kCount; ++j) {
      const bool first = part == 0 && !accumulate;
      const float before = part > 0 ? sum[j] : (accumulate && j < here ? out[i + j] : 0.0f);
      sum[j] = first ? widen(v.at[j]) : before + widen(v.at[j]);
    }
  }
  for (int j = 0; j < here; ++j) out[i + j] = sum[j];
}

template <typename T>
__global__ void __launch_bounds__(kThreads) fill_nan(T* to, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) to[i] = narrow<T>(NAN);
}

/// Adds the sums of a block's threads in a fixed order; thread 0 has the result.
template <int kCount>
__device__ double block_sum(double value) {
  __shared__ double sums[kCount];
  sums[threadIdx.x] = value;
  for (int half = kCount / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];
}

__global__ void __launch_bounds__(kThreads) sum_squares(const float* values, std::int64_t count, double* partial) {
  double sum = 0.0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  const double all = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = all;
}

__global__ void __launch_bounds__(kNormBlocks) write_numbers(WriteNumbers c, const double* partial) {
  const double squares = block_sum<kNormBlocks>(c.gradient == nullptr ? 0.0 : partial[threadIdx.x]);
  if (threadIdx.x != 0) return;
  double loss = 0.0;
  for (int micro = 0; micro < c.micro_batches; ++micro) loss += static_cast<double>(c.losses[micro]) / c.micro_batches;
  c.numbers[kSquares] = squares;
  c.numbers[kLoss] = loss;
}

__global__ void judge(Judge c) {
  double squares = 0.0, loss = 0.0;
  for (int rank = 0; rank < c.ranks; ++rank) {
    const double* const numbers = c.numbers + rank * kStepNumbers;
    if (rank == 0 || !c.replicated) squares += numbers[kSquares];
    loss += numbers[kLoss] / c.ranks;
  }
  double* const v = c.verdict;
  const double norm = sqrt(squares) * c.gradient_scale;
  v[kMeanLoss] = loss;
  v[kNorm] = norm;
  v[kScale] = c.gradient_scale * (c.clip_norm > 0 ? fmin(1.0, c.clip_norm / (norm + kClipEps)) : 1.0);
  const bool apply = !c.skip_infinite || isfinite(norm);
  v[kApply] = apply ? 1.0 : 0.0;
  if (!apply) return;
  v[kStep] += 1.0;
  v[kRate] = c.optimizer.lr / (1.0 - pow(c.optimizer.beta1, v[kStep]));
  v[kUnbias] = 1.0 / sqrt(1.0 - pow(c.optimizer.beta2, v[kStep]));
}

/// Factors of one update, in double; the update itself is in fp32.
struct Factors {
  float beta1, beta2, rest1, rest2, keep, lr, decay, eps;

  explicit Factors(const OptimizerFactors& o)
      : beta1(static_cast<float>(o.beta1)),
        beta2(static_cast<float>(o.beta2)),
        rest1(static_cast<float>(1 - o.beta1)),
        rest2(static_cast<float>(1 - o.beta2)),
        keep(static_cast<float>(1 - o.lr * o.weight_decay)),
        lr(static_cast<float>(o.lr)),
        decay(static_cast<float>(o.weight_decay)),
        eps(static_cast<float>(o.eps)) {}
};

template <int kCount>
__global__ void __launch_bounds__(kThreads) adamw(Factors f, Update c) {
  if (c.verdict[kApply] == 0.0) return;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (i >= c.count) return;
  const auto scale = static_cast<float>(c.verdict[kScale]), rate = static_cast<float>(c.verdict[kRate]),
             unbias = static_cast<float>(c.verdict[kUnbias]);
  const auto g = load<float, kCount>(c.gradient + i);
  auto w = load<float, kCount>(c.weight + i), m = load<float, kCount>(c.first + i),
       v = load<float, kCount>(c.second + i);
  for (int j = 0; j < kCount; ++j) {
    const float gradient = g.at[j] * scale;
    m.at[j] = f.beta1 * m.at[j] + f.rest1 * gradient;
    v.at[j] = f.beta2 * v.at[j] + f.rest2 * gradient * gradient;
    w.at[j] = f.keep * w.at[j] - rate * m.at[j] / (sqrtf(v.at[j]) * unbias + f.eps);
  }
  store(c.weight + i, w);
  store(c.first + i, m);
  store(c.second + i, v);
}

__global__ void __launch_bounds__(kThreads) sgd(Factors f, Update c) {
  if (c.verdict[kApply] == 0.0) return;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= c.count) return;
  c.weight[i] -= f.lr * (c.gradient[i] * static_cast<float>(c.verdict[kScale]) + f.decay * c.weight[i]);
}

template <typename To, typename From>
cudaError_t launch_cast(const Cast& c, cudaStream_t stream) {
  constexpr int kCount = static_cast<int>(16 / std::max(sizeof(To), sizeof(From)));
  auto* const to = static_cast<To*>(c.to);
  const auto* const from = static_cast<const From*>(c.from);
  if (aligned(to) && aligned(from)) {
    cast<To, From, kCount><<<blocks_for((c.count + kCount - 1) / kCount), kThreads, 0, stream>>>(to, from, c.count);
  } else {
    cast<To, From, 1><<<blocks_for(c.count), kThreads, 0, stream>>>(to, from, c.count);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch(const Cast& c, cudaStream_t stream) {
  if (c.count == 0) return cudaSuccess;
  return with_element(c.to_dtype, [&](auto* to) {
    return with_element(c.from_dtype, [&](auto* from) {
      return launch_cast<std::remove_pointer_t<decltype(to)>, std::remove_pointer_t<decltype(from)>>(c, stream);
    });
  });
}

cudaError_t launch(const OrderedSum& c, cudaStream_t stream) {
  if (c.count == 0) return cudaSuccess;
  if (c.parts.size() > kMostParts) return cudaErrorInvalidValue;
  Parts parts{};
  parts.count = static_cast<int>(c.parts.size());
  bool all_aligned = aligned(c.out);
  for (std::size_t i = 0; i < c.parts.size(); ++i) {
    parts.at[i] = c.parts[i];
    all_aligned = all_aligned && aligned(c.parts[i]);
  }
  return with_element(c.wire, [&](auto* element) {
    using Wire = std::remove_pointer_t<decltype(element)>;
    constexpr int kCount = kPackOf<Wire>;
    if (all_aligned) {
      const unsigned blocks = blocks_for((c.count + kCount - 1) / kCount);
      ordered_sum<Wire, kCount><<<blocks, kThreads, 0, stream>>>(c.out, c.accumulate, parts, c.count);
    } else {
      ordered_sum<Wire, 1><<<blocks_for(c.count), kThreads, 0, stream>>>(c.out, c.accumulate, parts, c.count);
    }
    return cudaGetLastError();
  });
}

cudaError_t launch(const FillNan& c, cudaStream_t stream) {
  if (c.count == 0) return cudaSuccess;
  return with_element(c.dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    fill_nan<<<blocks_for(c.count), kThreads, 0, stream>>>(static_cast<T*>(c.to), c.count);
    return cudaGetLastError();
  });
}

cudaError_t launch(const WriteNumbers& c, double* partial, cudaStream_t stream) {
  if (c.gradient != nullptr) {
    sum_squares<<<kNormBlocks, kThreads, 0, stream>>>(c.gradient, c.count, partial);
    if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) return code;
  }
  write_numbers<<<1, kNormBlocks, 0, stream>>>(c, partial);
  return cudaGetLastError();
}

cudaError_t launch(const Judge& c, cudaStream_t stream) {
  judge<<<1, 1, 0, stream>>>(c);
  return cudaGetLastError();
}

cudaError_t launch(const Update& c, cudaStream_t stream) {
  if (c.count == 0) return cudaSuccess;
  const Factors factors(c.optimizer);
  if (!c.optimizer.adamw) {
    sgd<<<blocks_for(c.count), kThreads, 0, stream>>>(factors, c);
  } else if (c.count % 4 == 0 && aligned(c.weight) && aligned(c.gradient) && aligned(c.first) && aligned(c.second)) {
    adamw<4><<<blocks_for(c.count / 4), kThreads, 0, stream>>>(factors, c);
  } else {
    adamw<1><<<blocks_for(c.count), kThreads, 0, stream>>>(factors, c);
  }
  return cudaGetLastError();
}

}  // namespace attnbench::kernels
