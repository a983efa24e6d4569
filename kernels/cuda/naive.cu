// Attention as written in a textbook: scores, softmax, product, each a matrix in device memory, each a kernel.
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/element.cuh"
#include "kernels/kernel.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 1 << 20;  // every kernel strides over its work, so any number of blocks will do

/// Rows [B, H, S, D] of a tensor, and the element at a position.
template <typename T>
struct Rows {
  T* data;
  std::int64_t stride[4];
  __device__ T& at(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) const {
    return data[b * stride[0] + h * stride[1] + s * stride[2] + d * stride[3]];
  }
};

template <typename T>
Rows<T> rows_of(const Tensor& t) {
  return {static_cast<T*>(t.data), {t.stride[0], t.stride[1], t.stride[2], t.stride[3]}};
}

__device__ std::int64_t first_index() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::int64_t index_step() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

/// out[b, h, i, j] = scale * sum over d of a[b, h, i, d] * keys[b, h / group, j, d], where query i sees key j.
/// Elsewhere nothing is read or written, here and in every kernel below: what lies at a masked position reaches
/// nothing.
template <typename T>
__global__ void scores(Problem p, std::int64_t group, Rows<T> a, Rows<T> keys, float scale, float* out) {
  const std::int64_t total = p.batch * p.heads * p.seq_q * p.seq_k;
  for (std::int64_t index = first_index(); index < total; index += index_step()) {
    const std::int64_t j = index % p.seq_k;
    const std::int64_t i = index / p.seq_k % p.seq_q;
    const std::int64_t h = index / p.seq_k / p.seq_q % p.heads;
    const std::int64_t b = index / p.seq_k / p.seq_q / p.heads;
    const KeyRange range = visible_keys(p, i);
    if (j < range.begin || j >= range.end) continue;
    float sum = 0.0f;
    for (std::int64_t d = 0; d < p.head_dim; ++d) sum += widen(a.at(b, h, i, d)) * widen(keys.at(b, h / group, j, d));
    out[index] = scale * sum;
  }
}

/// Turns rows of scores into weights in place; lse is -inf where a query sees no key. One block per row.
__global__ void softmax(Problem p, float* matrix, float* lse) {
  const std::int64_t total = p.batch * p.heads * p.seq_q;
  for (std::int64_t row = blockIdx.x; row < total; row += gridDim.x) {
    const KeyRange range = visible_keys(p, row % p.seq_q);
    float* s = matrix + row * p.seq_k;
    float largest = -INFINITY;
    for (std::int64_t j = range.begin + threadIdx.x; j < range.end; j += kRowThreads) {
      largest = fmaxf(largest, saturated(s[j]));
    }
    largest = block_reduce<Largest>(largest);
    float sum = 0.0f;
    for (std::int64_t j = range.begin + threadIdx.x; j < range.end; j += kRowThreads) {
      s[j] = expf(saturated(s[j]) - largest);
      sum += s[j];
    }
    sum = block_reduce<Sum>(sum);
    for (std::int64_t j = range.begin + threadIdx.x; j < range.end; j += kRowThreads) s[j] /= sum;
    if (threadIdx.x == 0) lse[row] = range.count() > 0 ? largest + logf(sum) : -INFINITY;
  }
}

/// ds = weights * (dp - delta) * scale in place of dp, delta = sum over keys of weights * dp. One block per row.
__global__ void softmax_gradient(Problem p, const float* weights, float* matrix) {
  const std::int64_t total = p.batch * p.heads * p.seq_q;
  for (std::int64_t row = blockIdx.x; row < total; row += gridDim.x) {
    const KeyRange range = visible_keys(p, row % p.seq_q);
    const float* w = weights + row * p.seq_k;
    float* ds = matrix + row * p.seq_k;
    float delta = 0.0f;
    for (std::int64_t j = range.begin + threadIdx.x; j < range.end; j += kRowThreads) delta += w[j] * ds[j];
    delta = block_reduce<Sum>(delta);
    for (std::int64_t j = range.begin + threadIdx.x; j < range.end; j += kRowThreads) {
      ds[j] = w[j] * (ds[j] - delta) * p.scale;
    }
  }
}

/// out[b, h, i, d] = sum over visible keys of matrix[b, h, i, j] * keys[b, h / group, j, d].
template <typename T>
__global__ void times_keys(Problem p, std::int64_t group, const float* matrix, Rows<T> keys, Rows<T> out) {
  const std::int64_t total = p.batch * p.heads * p.seq_q * p.head_dim;
  for (std::int64_t index = first_index(); index < total; index += index_step()) {
    const std::int64_t d = index % p.head_dim;
    const std::int64_t row = index / p.head_dim;
    const std::int64_t i = row % p.seq_q;
    const std::int64_t h = row / p.seq_q % p.heads;
    const std::int64_t b = row / p.seq_q / p.heads;
    const KeyRange range = visible_keys(p, i);
    float sum = 0.0f;
    for (std::int64_t j = range.begin; j < range.end; ++j) {
      sum += matrix[row * p.seq_k + j] * widen(keys.at(b, h / group, j, d));
    }
    out.at(b, h, i, d) = narrow<T>(sum);
  }
}

/// out[b, hkv, j, d] = sum over the group's heads and the queries that see key j of matrix[b, h, i, j] * rows[b, h, i,
/// d].
template <typename T>
__global__ void transposed_times_rows(Problem p, std::int64_t group, const float* matrix, Rows<T> rows, Rows<T> out) {
  const std::int64_t total = p.batch * p.kv_heads * p.seq_k * p.head_dim;
  for (std::int64_t index = first_index(); index < total; index += index_step()) {
    const std::int64_t d = index % p.head_dim;
    const std::int64_t j = index / p.head_dim % p.seq_k;
    const std::int64_t kv = index / p.head_dim / p.seq_k % p.kv_heads;
    const std::int64_t b = index / p.head_dim / p.seq_k / p.kv_heads;
    const KeyRange range = visible_queries(p, j);
    float sum = 0.0f;
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const float* head = matrix + (b * p.heads + h) * p.seq_q * p.seq_k;
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        sum += head[i * p.seq_k + j] * widen(rows.at(b, h, i, d));
      }
    }
    out.at(b, kv, j, d) = narrow<T>(sum);
  }
}

class Naive : public PreparedKernel {
 public:
  Naive(const AttentionArgs& args, cudaStream_t stream)
      : args_(args),
        p_(args.problem),
        group_(p_.kv_heads > 0 ? p_.heads / p_.kv_heads : 1),
        stream_(stream),
        weights_(static_cast<float*>(args.saved)),
        gradient_(static_cast<float*>(args.workspace)) {}

  std::string variant() const override { return "loops"; }

  Result<void> launch(Pass pass) override {
    with_element(p_.dtype, [&](auto* element) {
      using T = std::remove_pointer_t<decltype(element)>;
      if (pass == Pass::kFwd) {
        forward<T>();
      } else {
        backward<T>();
      }
    });
    const cudaError_t code = cudaGetLastError();
    if (code == cudaSuccess) return {};
    return fail(ErrorKind::kFailed, std::string("naive: ") + cudaGetErrorString(code));
  }

 private:
  /// One thread per item, or one block per row; nothing at all for nothing.
  template <typename... Parameters, typename... Arguments>
  void run(std::int64_t blocks, void (*kernel)(Parameters...), Arguments... arguments) {
    if (blocks == 0) return;
    kernel<<<static_cast<unsigned>(std::min(blocks, kMaxBlocks)), kThreads, 0, stream_>>>(arguments...);
  }
  static std::int64_t blocks_for(std::int64_t items) { return (items + kThreads - 1) / kThreads; }

  std::int64_t rows() const { return p_.batch * p_.heads * p_.seq_q; }
  std::int64_t keys() const { return p_.batch * p_.kv_heads * p_.seq_k; }

  template <typename T>
  void forward() {
    static_assert(kThreads == kRowThreads);
    run(blocks_for(rows() * p_.seq_k), scores<T>, p_, group_, rows_of<T>(args_.q), rows_of<T>(args_.k), p_.scale,
        weights_);
    run(rows(), softmax, p_, weights_, args_.lse);
    run(blocks_for(rows() * p_.head_dim), times_keys<T>, p_, group_, weights_, rows_of<T>(args_.v),
        rows_of<T>(args_.o));
  }

  template <typename T>
  void backward() {
    run(blocks_for(keys() * p_.head_dim), transposed_times_rows<T>, p_, group_, weights_, rows_of<T>(args_.dout),
        rows_of<T>(args_.dv));
    run(blocks_for(rows() * p_.seq_k), scores<T>, p_, group_, rows_of<T>(args_.dout), rows_of<T>(args_.v), 1.0f,
        gradient_);
    run(rows(), softmax_gradient, p_, weights_, gradient_);
    run(blocks_for(rows() * p_.head_dim), times_keys<T>, p_, group_, gradient_, rows_of<T>(args_.k),
        rows_of<T>(args_.dq));
    run(blocks_for(keys() * p_.head_dim), transposed_times_rows<T>, p_, group_, gradient_, rows_of<T>(args_.q),
        rows_of<T>(args_.dk));
  }

  AttentionArgs args_;
  Problem p_;
  std::int64_t group_;
  cudaStream_t stream_;
  float* weights_;
  float* gradient_;
};

std::optional<std::string> supports(const Problem&, Pass, const Target&) { return std::nullopt; }

Footprint footprint(const Problem& p, Pass pass, const Target&) {
  const auto matrix = static_cast<std::size_t>(p.batch * p.heads * p.seq_q * p.seq_k) * sizeof(float);
  return {pass == Pass::kFwd ? 0 : matrix, matrix};
}

Result<std::unique_ptr<PreparedKernel>> prepare_naive(const AttentionArgs& args, Device& device) {
  return std::make_unique<Naive>(args, static_cast<cudaStream_t>(device.stream()));
}

}  // namespace

/// Shapes  q, o, dout, dq [B, H, Sq, D]   k, v, dk, dv [B, Hkv, Sk, D]   lse [B, H, Sq], natural log
/// Needs   nothing: any extents, strides and head dimension
/// Memory  P [B, H, Sq, Sk] in fp32, kept for the backward; dS of the same size while it runs
/// Errors  launch errors only
const KernelInfo& cuda_naive() {
  static const KernelInfo info = [] {
    KernelInfo naive;
    naive.name = "naive";
    naive.variant = "loops";
    naive.summary = "scores, softmax and product as three kernels, one thread per result; P kept for the backward";
    naive.source = "Vaswani et al. 2017, arXiv:1706.03762, equation 1";
    naive.device = DeviceKind::kCuda;
    naive.materialises = true;
    naive.supports = &supports;
    naive.footprint = &footprint;
    naive.tolerance = &default_tolerance;
    naive.prepare = &prepare_naive;
    return naive;
  }();
  return info;
}

}  // namespace attnbench::kernels
