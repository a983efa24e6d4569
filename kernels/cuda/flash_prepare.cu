// The small kernels around flash: packing inputs into the form the tiles load, row statistics, and dQ's last step.
#include "kernels/cuda/flash_launch.cuh"
#include "kernels/cuda/flash_tile.cuh"

namespace attnbench::kernels::flash_cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanesPerRow = 8;  // of the statistics; each takes every eighth chunk of 8 elements

template <typename T>
__device__ __forceinline__ float load_float(const T* from) {
  if constexpr (sizeof(T) == 4) {
    return *from;
  } else {
    return Element<T>::to_float(*from);
  }
}

/// Eight elements of a row from `column` on, zeros past `width`; 16-byte loads where the row allows them.
template <typename T>
__device__ __forceinline__ void load_eight(float (&x)[8], const T* row, std::int64_t stride, int column, int width) {
  const T* from = row + column * stride;
  if (stride == 1 && column + 8 <= width && (reinterpret_cast<std::uintptr_t>(from) & 15) == 0) {
    constexpr int kPerLoad = 16 / sizeof(T);
#pragma unroll
    for (int i = 0; i < 8; i += kPerLoad) {
      const uint4 raw = *reinterpret_cast<const uint4*>(from + i);
      const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if constexpr (sizeof(T) == 4) {
          x[i + w] = __uint_as_float(words[w]);
        } else {
          x[2 * w] = Element<T>::low(words[w]);
          x[2 * w + 1] = Element<T>::high(words[w]);
        }
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = column + i < width ? load_float(from + i * stride) : 0.0f;
}

/// The bf16 that a finite float must not leave the finite range for: rounds, but towards zero at the very top.
__device__ __forceinline__ float high_plane(float x) {
  const float rounded = __bfloat162float(__float2bfloat16_rn(x));
  return isinf(rounded) && !isinf(x) ? __uint_as_float(__float_as_uint(x) & 0xffff0000u) : rounded;
}

/// A finite float as its two planes hold it: what the products see of it.
__device__ __forceinline__ float of_two_planes(float x) {
  const float high = high_plane(x);
  return isfinite(high) ? high + __bfloat162float(__float2bfloat16_rn(x - high)) : x;
}

template <typename T>
__device__ __forceinline__ void pack_chunk(const PackJob& job, int head_dim, int packed_dim, std::int64_t index) {
  const int chunks = packed_dim / 8;
  const std::int64_t row = index / chunks;
  if (row >= job.rows) return;
  const int column = static_cast<int>(index - row * chunks) * 8;
  const std::int64_t head = row / job.seq;
  const std::int64_t batch = head / job.heads;
  const T* source = static_cast<const T*>(job.source) + batch * job.batch + (head - batch * job.heads) * job.head +
                    (row - head * job.seq) * job.row;
  float x[8];
  load_eight(x, source, job.column, column, head_dim);
  std::uint32_t packed[4];
  if constexpr (sizeof(T) == 4) {
    std::uint32_t low[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float a = high_plane(x[2 * w]);
      const float b = high_plane(x[2 * w + 1]);
      packed[w] = Element<Bf16Element>::pack(a, b);
      low[w] = Element<Bf16Element>::pack(isfinite(a) ? x[2 * w] - a : 0.0f, isfinite(b) ? x[2 * w + 1] - b : 0.0f);
    }
    *reinterpret_cast<uint4*>(static_cast<Bf16Element*>(job.target) + job.plane + row * packed_dim + column) =
        make_uint4(low[0], low[1], low[2], low[3]);
  } else {
#pragma unroll
    for (int w = 0; w < 4; ++w) packed[w] = Element<T>::pack(x[2 * w], x[2 * w + 1]);
  }
  *reinterpret_cast<uint4*>(static_cast<char*>(job.target) + 2 * (row * packed_dim + column)) =
      make_uint4(packed[0], packed[1], packed[2], packed[3]);
}

/// delta and lse of one row by eight lanes, and zeros for its dQ sum.
template <typename T>
__device__ __forceinline__ void row_stats(const StatsJob& job, int head_dim, std::int64_t index) {
  const std::int64_t row = index / kLanesPerRow;
  const int lane = static_cast<int>(index % kLanesPerRow);
  float delta = 0.0f;
  if (row < job.rows) {
    const std::int64_t head = row / job.seq;
    const std::int64_t batch = head / job.heads;
    const std::int64_t in_batch = head - batch * job.heads;
    const std::int64_t in_head = row - head * job.seq;
    const T* o = static_cast<const T*>(job.o) + batch * job.o_batch + in_batch * job.o_head + in_head * job.o_row;
    const T* g = static_cast<const T*>(job.dout) + batch * job.g_batch + in_batch * job.g_head + in_head * job.g_row;
    for (int column = lane * 8; column < head_dim; column += kLanesPerRow * 8) {
      float x[8];
      float y[8];
      load_eight(x, o, job.o_column, column, head_dim);
      load_eight(y, g, job.g_column, column, head_dim);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        // dP is made from the planes of dO: delta from the same, or dP - delta keeps a difference that is none.
        if constexpr (sizeof(T) == 4) y[i] = of_two_planes(y[i]);
        delta = fmaf(x[i], y[i], delta);
      }
    }
    if (job.dq_sum != nullptr) {
      float* sum = job.dq_sum + row * job.dq_width;
      for (int column = lane * 4; column < job.dq_width; column += kLanesPerRow * 4) {
        *reinterpret_cast<float4*>(sum + column) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
    }
  }
#pragma unroll
  for (int step = kLanesPerRow / 2; step > 0; step /= 2) delta += __shfl_xor_sync(0xffffffffu, delta, step);
  if (row < job.rows && lane == 0) {
    // A row that sees no key: +inf makes its P zero, and its delta (dO against o = 0) must not be NaN * 0.
    const float lse = job.lse[row];
    float log2_lse = lse * kLog2e;
    if (job.saved != nullptr) log2_lse = job.saved[row].x * job.scale_log2 + job.saved[row].y;
    // Not infinite, which says that a row sees nothing.
    if (fabsf(log2_lse) == INFINITY) log2_lse = copysignf(3.0e38f, log2_lse);
    job.stats[row] = lse == -INFINITY ? make_float2(INFINITY, 0.0f) : make_float2(log2_lse, delta);
  }
}

/// Job blockIdx.y: pack jobs first, statistics last.
template <typename T>
__global__ void __launch_bounds__(kThreads) prepare_kernel(const PrepareParams params) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int job = static_cast<int>(blockIdx.y);
  if (job < params.packs) {
    pack_chunk<T>(params.pack[job], params.head_dim, params.packed_dim, index);
  } else {
    row_stats<T>(params.stats, params.head_dim, index);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) convert_kernel(const ConvertParams params) {
  const int chunks = (params.head_dim + 3) / 4;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = index / chunks;
  if (row >= params.rows) return;
  const int column = static_cast<int>(index - row * chunks) * 4;
  const std::int64_t head = row / params.seq;
  const std::int64_t batch = head / params.heads;
  const float4 sum = *reinterpret_cast<const float4*>(params.dq_sum + row * params.dq_width + column);
  T* out = static_cast<T*>(params.dq.data) + batch * params.dq.batch + (head - batch * params.heads) * params.dq.head +
           (row - head * params.seq) * params.dq.row;
  store_pair(out, params.dq, column, params.head_dim, sum.x * params.scale, sum.y * params.scale);
  store_pair(out, params.dq, column + 2, params.head_dim, sum.z * params.scale, sum.w * params.scale);
}

std::int64_t blocks_for(std::int64_t threads) { return (threads + kThreads - 1) / kThreads; }

}  // namespace

cudaError_t launch_prepare(const PrepareParams& params, Storage storage, cudaStream_t stream) {
  std::int64_t blocks = blocks_for(params.stats.rows * kLanesPerRow);
  for (int i = 0; i < params.packs; ++i) {
    const std::int64_t needed = blocks_for(params.pack[i].rows * (params.packed_dim / 8));
    if (needed > blocks) blocks = needed;
  }
  if (blocks == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(params.packs + (params.stats.rows > 0 ? 1 : 0)));
  if (storage == Storage::kFp32) {
    prepare_kernel<float><<<grid, kThreads, 0, stream>>>(params);
  } else if (storage == Storage::kBf16) {
    prepare_kernel<Bf16Element><<<grid, kThreads, 0, stream>>>(params);
  } else {
    prepare_kernel<Fp16Element><<<grid, kThreads, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

cudaError_t launch_convert(const ConvertParams& params, Storage storage, cudaStream_t stream) {
  const std::int64_t blocks = blocks_for(params.rows * ((params.head_dim + 3) / 4));
  if (blocks == 0) return cudaSuccess;
  const unsigned grid = static_cast<unsigned>(blocks);
  if (storage == Storage::kFp32) {
    convert_kernel<float><<<grid, kThreads, 0, stream>>>(params);
  } else if (storage == Storage::kBf16) {
    convert_kernel<Bf16Element><<<grid, kThreads, 0, stream>>>(params);
  } else {
    convert_kernel<Fp16Element><<<grid, kThreads, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

}  // namespace attnbench::kernels::flash_cuda
