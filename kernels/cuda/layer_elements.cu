// Element by element: rotary embedding, gating, ReLU, rows of a table.
#include "kernels/cuda/layer_launch.hpp"
#include "kernels/cuda/pack.cuh"

namespace attnbench::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kMostPairs = 512;  // of a head, as Rotary says

/// A block has a position: its angles are made once, in double, for all heads.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) rotary(Rotary c) {
  __shared__ float cosine[kMostPairs], sine[kMostPairs];
  const std::int64_t row = blockIdx.x, position = row % c.seq, pairs = c.head_dim / 2;
  for (std::int64_t i = threadIdx.x; i < pairs; i += kThreads) {
    const double speed = pow(c.theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
    double sin_angle = 0.0, cos_angle = 0.0;
    sincos(static_cast<double>(position) * speed, &sin_angle, &cos_angle);
    cosine[i] = static_cast<float>(cos_angle);
    sine[i] = static_cast<float>(c.inverse ? -sin_angle : sin_angle);
  }
  __syncthreads();
  T* const x = static_cast<T*>(c.x) + row * c.stride;
  constexpr int kPairs = kCount / 2;
  for (std::int64_t j = threadIdx.x; j < c.heads * pairs / kPairs; j += kThreads) {
    const std::int64_t pair = j * kPairs % pairs;
    auto v = load<T, kCount>(x + j * kCount);
    for (int i = 0; i < kPairs; ++i) {
      const float a = widen(v.at[2 * i]), b = widen(v.at[2 * i + 1]);
      const float cos_angle = cosine[pair + i], sin_angle = sine[pair + i];
      v.at[2 * i] = narrow<T>(a * cos_angle - b * sin_angle);
      v.at[2 * i + 1] = narrow<T>(a * sin_angle + b * cos_angle);
    }
    store(x + j * kCount, v);
  }
}

__device__ float sigmoid(float z) { return 1.0f / (1.0f + expf(-z)); }

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) swiglu(SwiGlu c) {
  const std::int64_t row = blockIdx.x;
  const T* const gate = static_cast<const T*>(c.gate_up) + row * 2 * c.width;
  T* const act = static_cast<T*>(c.act) + row * c.width;
  for (std::int64_t j = threadIdx.x * kCount; j < c.width; j += kThreads * kCount) {
    const auto z = load<T, kCount>(gate + j), up = load<T, kCount>(gate + c.width + j);
    Pack<T, kCount> out;
    for (int i = 0; i < kCount; ++i) {
      const float g = widen(z.at[i]);
      out.at[i] = narrow<T>(g * sigmoid(g) * widen(up.at[i]));
    }
    store(act + j, out);
  }
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) swiglu_backward(SwiGluBackward c) {
  const std::int64_t row = blockIdx.x;
  T* const gate = static_cast<T*>(c.gate_up) + row * 2 * c.width;
  T* const dact = static_cast<T*>(c.dact) + row * c.width;
  for (std::int64_t j = threadIdx.x * kCount; j < c.width; j += kThreads * kCount) {
    auto z = load<T, kCount>(gate + j), up = load<T, kCount>(gate + c.width + j), d = load<T, kCount>(dact + j);
    for (int i = 0; i < kCount; ++i) {
      const float g = widen(z.at[i]), u = widen(up.at[i]), slope = widen(d.at[i]), s = sigmoid(g);
      const float silu = g * s;
      z.at[i] = narrow<T>(slope * u * s * (1.0f + g * (1.0f - s)));
      up.at[i] = narrow<T>(slope * silu);
      d.at[i] = narrow<T>(silu * u);
    }
    store(gate + j, z);
    store(gate + c.width + j, up);
    store(dact + j, d);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) relu(const T* x, const T* dy, T* out, std::int64_t elements) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= elements) return;
  out[i] = widen(x[i]) > 0.0f ? (dy == nullptr ? x[i] : dy[i]) : narrow<T>(0.0f);
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) embedding(Embedding c, IdFault* fault) {
  const std::int64_t row = blockIdx.x;
  const int id = c.ids[row];
  const bool known = id >= 0 && id < c.vocab;
  if (!known && threadIdx.x == 0) *fault = {id, static_cast<int>(row), static_cast<int>(c.vocab), 0};
  const T* const from = static_cast<const T*>(c.table) + (known ? id : 0) * c.width;
  T* const to = static_cast<T*>(c.out) + row * c.width;
  for (std::int64_t j = threadIdx.x * kCount; j < c.width; j += kThreads * kCount) {
    auto v = load<T, kCount>(from + j);
    if (!known) {
      for (int i = 0; i < kCount; ++i) v.at[i] = narrow<T>(NAN);
    }
    store(to + j, v);
  }
}

template <typename T>
cudaError_t launch_relu(const void* x, const void* dy, void* out, std::int64_t elements, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((elements + kThreads - 1) / kThreads);
  if (blocks == 0) return cudaSuccess;
  relu<<<blocks, kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<T*>(out),
                                        elements);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch(const Rotary& c, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(c.batch * c.seq);
  if (rows == 0 || c.heads == 0) return cudaSuccess;
  return with_element(c.dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    if (packs<T>(c.head_dim, c.x) && c.stride % kPackOf<T> == 0) {
      rotary<T, kPackOf<T>><<<rows, kThreads, 0, stream>>>(c);
    } else {
      rotary<T, 2><<<rows, kThreads, 0, stream>>>(c);
    }
    return cudaGetLastError();
  });
}

cudaError_t launch(const SwiGlu& c, cudaStream_t stream) {
  if (c.rows == 0) return cudaSuccess;
  const auto packed = [&](auto* element) {
    return packs<std::remove_pointer_t<decltype(element)>>(c.width, c.gate_up, c.act);
  };
  return with_pack(c.dtype, packed, [&](auto* element, auto count) {
    swiglu<std::remove_pointer_t<decltype(element)>, count.value>
        <<<static_cast<unsigned>(c.rows), kThreads, 0, stream>>>(c);
    return cudaGetLastError();
  });
}

cudaError_t launch(const SwiGluBackward& c, cudaStream_t stream) {
  if (c.rows == 0) return cudaSuccess;
  const auto packed = [&](auto* element) {
    return packs<std::remove_pointer_t<decltype(element)>>(c.width, c.gate_up, c.dact);
  };
  return with_pack(c.dtype, packed, [&](auto* element, auto count) {
    swiglu_backward<std::remove_pointer_t<decltype(element)>, count.value>
        <<<static_cast<unsigned>(c.rows), kThreads, 0, stream>>>(c);
    return cudaGetLastError();
  });
}

cudaError_t launch(const Relu& c, cudaStream_t stream) {
  return with_element(c.dtype, [&](auto* element) {
    return launch_relu<std::remove_pointer_t<decltype(element)>>(c.x, nullptr, c.y, c.elements, stream);
  });
}

cudaError_t launch(const ReluBackward& c, cudaStream_t stream) {
  return with_element(c.dtype, [&](auto* element) {
    return launch_relu<std::remove_pointer_t<decltype(element)>>(c.x, c.dy, c.dx, c.elements, stream);
  });
}

cudaError_t launch(const Embedding& c, IdFault* fault, cudaStream_t stream) {
  if (c.rows == 0) return cudaSuccess;
  const auto packed = [&](auto* element) {
    return packs<std::remove_pointer_t<decltype(element)>>(c.width, c.table, c.out);
  };
  return with_pack(c.dtype, packed, [&](auto* element, auto count) {
    embedding<std::remove_pointer_t<decltype(element)>, count.value>
        <<<static_cast<unsigned>(c.rows), kThreads, 0, stream>>>(c, fault);
    return cudaGetLastError();
  });
}

}  // namespace attnbench::kernels
