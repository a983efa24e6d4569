// RMS norm and its backward: a warp has a row, read twice, the second time from the cache.
#include <algorithm>

#include "kernels/cuda/layer_launch.hpp"
#include "kernels/cuda/pack.cuh"

namespace attnbench::kernels {
namespace {

constexpr int kForwardWarps = 8;
constexpr int kBackwardWarps = 4;
constexpr int kGainRows = 8;              // rows of a part at the least
constexpr std::int64_t kMostParts = 512;  // fills a Hopper GPU; a constant, so that bits do not depend on the device
constexpr int kGainColumns = 32, kGainLanes = 32;

template <typename T, int kCount>
__global__ void __launch_bounds__(kForwardWarps * 32) rms_norm(RmsNorm c) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kForwardWarps + threadIdx.x / 32;
  if (row >= c.rows) return;
  const int lane = threadIdx.x % 32;
  const T* const x = static_cast<const T*>(c.x) + row * c.width;
  const T* const gain = static_cast<const T*>(c.gain);
  T* const y = static_cast<T*>(c.y) + row * c.width;
  float squares = 0.0f;
  for (std::int64_t j = lane * kCount; j < c.width; j += 32 * kCount) {
    const auto v = load<T, kCount>(x + j);
    for (int i = 0; i < kCount; ++i) squares += widen(v.at[i]) * widen(v.at[i]);
  }
  const float inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(c.width) + c.eps);
  if (lane == 0) c.inverse[row] = inverse;
  for (std::int64_t j = lane * kCount; j < c.width; j += 32 * kCount) {
    const auto v = load<T, kCount>(x + j);
    const auto g = load<T, kCount>(gain + j);
    Pack<T, kCount> out;
    for (int i = 0; i < kCount; ++i) out.at[i] = narrow<T>(widen(v.at[i]) * inverse * widen(g.at[i]));
    store(y + j, out);
  }
}

/// One row: dx, and its share of the gain's gradient added to `sums` (null: not asked for).
template <typename T, int kCount>
__device__ void backward_row(const RmsNormBackward& c, std::int64_t row, int lane, float* sums) {
  const T* const x = static_cast<const T*>(c.x) + row * c.width;
  const T* const dy = static_cast<const T*>(c.dy) + row * c.width;
  const T* const gain = static_cast<const T*>(c.gain);
  const T* const addend = c.addend == nullptr ? nullptr : static_cast<const T*>(c.addend) + row * c.width;
  T* const dx = static_cast<T*>(c.dx) + row * c.width;
  const float inverse = c.inverse[row];
  float product = 0.0f;
  for (std::int64_t j = lane * kCount; j < c.width; j += 32 * kCount) {
    const auto v = load<T, kCount>(x + j), d = load<T, kCount>(dy + j), g = load<T, kCount>(gain + j);
    for (int i = 0; i < kCount; ++i) product += widen(d.at[i]) * widen(g.at[i]) * widen(v.at[i]);
  }
  const float along = warp_sum(product) * inverse * inverse * inverse / static_cast<float>(c.width);
  for (std::int64_t j = lane * kCount; j < c.width; j += 32 * kCount) {
    const auto v = load<T, kCount>(x + j), d = load<T, kCount>(dy + j), g = load<T, kCount>(gain + j);
    Pack<T, kCount> more{}, out;
    if (addend != nullptr) more = load<T, kCount>(addend + j);
    for (int i = 0; i < kCount; ++i) {
      const float slope = widen(d.at[i]) * widen(g.at[i]) * inverse - widen(v.at[i]) * along;
      out.at[i] = narrow<T>(addend == nullptr ? slope : widen(more.at[i]) + slope);
      if (sums != nullptr) sums[j + i] += widen(d.at[i]) * widen(v.at[i]) * inverse;
    }
    store(dx + j, out);
  }
}

/// A block has every gridDim.x-th group of rows; each warp sums the gain's gradient in shared memory of its own.
template <typename T, int kCount>
__global__ void __launch_bounds__(kBackwardWarps * 32) rms_norm_backward(RmsNormBackward c) {
  extern __shared__ float shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* const sums = c.dgain.data == nullptr ? nullptr : shared + warp * c.width;
  if (sums != nullptr) {
    for (std::int64_t j = lane * kCount; j < c.width; j += 32 * kCount) {
      for (int i = 0; i < kCount; ++i) sums[j + i] = 0.0f;
    }
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBackwardWarps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kBackwardWarps + warp; row < c.rows; row += step) {
    backward_row<T, kCount>(c, row, lane, sums);
  }
  if (sums == nullptr) return;
  __syncthreads();
  float* const part = static_cast<float*>(c.scratch) + static_cast<std::int64_t>(blockIdx.x) * c.width;
  for (std::int64_t j = threadIdx.x; j < c.width; j += kBackwardWarps * 32) {
    float sum = 0.0f;
    for (int w = 0; w < kBackwardWarps; ++w) sum += shared[w * c.width + j];
    part[j] = sum;
  }
}

/// Adds the parts: every thread each kGainLanes-th one of its column, then those sums in order.
template <typename Out>
__global__ void sum_gain(const float* parts, std::int64_t count, std::int64_t width, Out* out, bool accumulate) {
  __shared__ float sums[kGainLanes][kGainColumns + 1];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kGainColumns + threadIdx.x;
  float sum = 0.0f;
  if (column < width) {
    for (std::int64_t part = threadIdx.y; part < count; part += kGainLanes) sum += parts[part * width + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int i = 1; i < kGainLanes; ++i) sum += sums[i][threadIdx.x];
  out[column] = narrow<Out>(accumulate ? widen(out[column]) + sum : sum);
}

template <typename T, int kCount>
cudaError_t launch_backward(const RmsNormBackward& c, cudaStream_t stream) {
  const std::size_t shared =
      c.dgain.data == nullptr ? 0 : static_cast<std::size_t>(c.width) * kBackwardWarps * sizeof(float);
  if (shared > 48 * 1024) {
    const cudaError_t code = cudaFuncSetAttribute(
        rms_norm_backward<T, kCount>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (code != cudaSuccess) return code;
  }
  const auto parts = static_cast<unsigned>(gain_parts(c.rows));
  rms_norm_backward<T, kCount><<<parts, kBackwardWarps * 32, shared, stream>>>(c);
  return cudaGetLastError();
}

}  // namespace

std::int64_t gain_parts(std::int64_t rows) {
  return std::clamp<std::int64_t>((rows + kGainRows - 1) / kGainRows, 1, kMostParts);
}

cudaError_t launch(const RmsNorm& c, cudaStream_t stream) {
  if (c.rows == 0) return cudaSuccess;
  const auto packed = [&](auto* element) {
    return packs<std::remove_pointer_t<decltype(element)>>(c.width, c.x, c.gain, c.y);
  };
  return with_pack(c.dtype, packed, [&](auto* element, auto count) {
    using T = std::remove_pointer_t<decltype(element)>;
    const auto blocks = static_cast<unsigned>((c.rows + kForwardWarps - 1) / kForwardWarps);
    rms_norm<T, count.value><<<blocks, kForwardWarps * 32, 0, stream>>>(c);
    return cudaGetLastError();
  });
}

cudaError_t launch(const RmsNormBackward& c, cudaStream_t stream) {
  if (c.rows == 0) return cudaSuccess;
  const auto packed = [&](auto* element) {
    return packs<std::remove_pointer_t<decltype(element)>>(c.width, c.x, c.gain, c.dy, c.addend, c.dx);
  };
  const cudaError_t code = with_pack(c.dtype, packed, [&](auto* element, auto count) {
    return launch_backward<std::remove_pointer_t<decltype(element)>, count.value>(c, stream);
  });
  if (code != cudaSuccess || c.dgain.data == nullptr) return code;
  return with_element(c.dgain.dtype, [&](auto* out) {
    const auto blocks = static_cast<unsigned>((c.width + kGainColumns - 1) / kGainColumns);
    using Out = std::remove_pointer_t<decltype(out)>;
    sum_gain<<<blocks, dim3(kGainColumns, kGainLanes), 0, stream>>>(
        static_cast<const float*>(c.scratch), gain_parts(c.rows), c.width, static_cast<Out*>(c.dgain.data),
        c.dgain.accumulate);
    return cudaGetLastError();
  });
}

}  // namespace attnbench::kernels
