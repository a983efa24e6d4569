// What the developer's benchmarks share: checked calls, random tensors, errors against double precision, times.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "kernels/cuda/mma.cuh"

namespace attnbench::dev {

using namespace kernels;

#define CHECK_CUDA(call)                                                                         \
  do {                                                                                           \
    const cudaError_t check_error = (call);                                                      \
    if (check_error != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_error)); \
      std::exit(1);                                                                              \
    }                                                                                            \
  } while (false)

inline unsigned blocks(std::int64_t threads) { return static_cast<unsigned>((threads + 255) / 256); }

/// The numbers among the arguments, from `first` on.
inline std::vector<std::int64_t> numbers(int argc, char** argv, int first) {
  std::vector<std::int64_t> all;
  for (int i = first; i < argc; ++i) all.push_back(std::atoll(argv[i]));
  return all;
}

__device__ inline float uniform(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  return (static_cast<float>(x >> 40) + 0.5f) * (1.0f / 16777216.0f);
}

template <typename T>
__device__ inline T convert(float x) {
  if constexpr (sizeof(T) == 4)
    return x;
  else
    return flash_cuda::Element<T>::from_float(x);
}

template <typename T>
__device__ inline float widen(T x) {
  if constexpr (sizeof(T) == 4)
    return x;
  else
    return flash_cuda::Element<T>::to_float(x);
}

struct Strides {
  std::int64_t batch, head, row, column, heads, seq, width;
  __device__ std::int64_t at(std::int64_t index) const {
    const std::int64_t c = index % width, r = index / width % seq, h = index / width / seq % heads;
    return index / width / seq / heads * batch + h * head + r * row + c * column;
  }
};

/// Of a tensor without gaps.
inline Strides dense_elements(std::int64_t n) { return {n, n, n, 1, 1, 1, std::max<std::int64_t>(n, 1)}; }

template <typename T>
__global__ void fill_normal_kernel(T* data, float* dense, Strides s, std::int64_t n, std::uint64_t seed) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  const float u = uniform(seed * 0x1000003ull + 2 * i), w = uniform(seed * 0x1000003ull + 2 * i + 1);
  const T x = convert<T>(sqrtf(-2.0f * logf(u)) * cospif(2.0f * w));
  data[s.at(i)] = x;
  if (dense != nullptr) dense[i] = widen(x);
}

/// N(0, 1) in the tensor's type, and the same numbers as dense floats where `dense` is not null.
template <typename T>
void fill_normal(T* data, float* dense, const Strides& s, std::int64_t n, std::uint64_t seed) {
  if (n > 0) fill_normal_kernel<T><<<blocks(n), 256>>>(data, dense, s, n, seed);
  CHECK_CUDA(cudaGetLastError());
}

template <typename T>
__global__ void compare(const T* data, const double* truth, Strides s, std::int64_t n, double* result) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  const double got = widen(data[s.at(i)]);
  double error = fabs(got - truth[i]);
  if (got == truth[i]) error = 0.0;  // infinities
  if (!(error < 1e30)) error = 1e30;
  atomicMax(reinterpret_cast<unsigned long long*>(result), __double_as_longlong(error));
  const double size = fabs(truth[i]);
  if (size < 1e300) atomicMax(reinterpret_cast<unsigned long long*>(result + 1), __double_as_longlong(size));
}

/// Largest error relative to the largest magnitude, absolute where that is under 1.
template <typename T>
double error_of(const T* data, const double* truth, const Strides& s, std::int64_t n) {
  if (n == 0) return 0.0;
  double* result = nullptr;
  CHECK_CUDA(cudaMallocManaged(&result, 16));
  result[0] = result[1] = 0.0;
  compare<T><<<blocks(n), 256>>>(data, truth, s, n, result);
  CHECK_CUDA(cudaDeviceSynchronize());
  const double error = result[0] / std::max(1.0, result[1]);
  CHECK_CUDA(cudaFree(result));
  return error;
}

/// Times launches inside a CUDA graph. Hot: twenty in a graph; cold: one, after L2 was written over.
class Timer {
 public:
  /// `launch` puts one launch on the stream; it runs twice before the first time is taken.
  Timer(cudaStream_t stream, bool cold, const std::function<void()>& launch) : stream_(stream), cold_(cold) {
    CHECK_CUDA(cudaDeviceSynchronize());
    launch();
    CHECK_CUDA(cudaStreamSynchronize(stream));
    cudaGraph_t graph = nullptr;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches(); ++i) launch();
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec_, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaEventCreate(&begin_));
    CHECK_CUDA(cudaEventCreate(&end_));
    (void)take_us();
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaGraphExecDestroy(exec_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Of one launch.
  double take_us() {
    constexpr std::size_t kFlush = 256u << 20;
    static char* flush = nullptr;
    if (flush == nullptr) CHECK_CUDA(cudaMalloc(&flush, kFlush));
    if (cold_) CHECK_CUDA(cudaMemsetAsync(flush, ++taken_, kFlush, stream_));
    CHECK_CUDA(cudaEventRecord(begin_, stream_));
    CHECK_CUDA(cudaGraphLaunch(exec_, stream_));
    CHECK_CUDA(cudaEventRecord(end_, stream_));
    CHECK_CUDA(cudaEventSynchronize(end_));
    float ms = 0.0f;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    return ms * 1000.0 / launches();
  }

  /// How long all launches of one sample take, us.
  double sample_us(double time_us) const { return time_us * launches(); }

 private:
  int launches() const { return cold_ ? 1 : 20; }

  cudaStream_t stream_;
  bool cold_;
  int taken_ = 0;
  cudaGraphExec_t exec_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

inline double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

/// Median of `least` to `most` times of one launch, us; those beyond `least` while the samples' sum is below the
/// budget.
inline double median_us(Timer& timer, std::size_t least, std::size_t most, double budget_ms) {
  std::vector<double> samples;
  double spent_us = 0.0;
  while (samples.size() < least || (samples.size() < most && spent_us < budget_ms * 1000)) {
    samples.push_back(timer.take_us());
    spent_us += timer.sample_us(samples.back());
  }
  return median(std::move(samples));
}

}  // namespace attnbench::dev
