// Makes N(0, 1) tensors on all threads; element i depends on the seed and i alone.
#include "bench/measure/inputs.hpp"

#include <algorithm>

#include "bench/base/rng.hpp"

namespace attnbench::measure {
namespace {

using kernels::Bf16;
using kernels::Dtype;
using kernels::Fp16;

/// Elements that one item of the pool makes; even, since elements 2i and 2i + 1 share their uniforms.
constexpr std::int64_t kBlock = 1 << 14;

/// Streams of the generator, one a tensor.
enum Stream : std::uint64_t { kQ = 1, kK = 2, kV = 3, kDout = 4 };

HostTensor normal_tensor(const std::array<std::int64_t, 4>& extent, Dtype dtype, std::uint64_t seed, Stream stream,
                         kernels::ThreadPool& pool) {
  HostTensor tensor(extent, dtype);
  const base::Rng rng(seed, stream);
  const std::int64_t size = tensor.view.size();
  pool.parallel_for((size + kBlock - 1) / kBlock, [&](std::int64_t block, int) {
    const std::int64_t end = std::min(size, (block + 1) * kBlock);
    for (std::int64_t i = block * kBlock; i < end; ++i) {
      store_element(tensor, i, rng.normal(static_cast<std::uint64_t>(i)));
    }
  });
  return tensor;
}

}  // namespace

HostTensor::HostTensor(const std::array<std::int64_t, 4>& extent, Dtype dtype) {
  view.dtype = dtype;
  view.extent = extent;
  view.stride = kernels::dense_strides(extent);
  bytes.resize(static_cast<std::size_t>(view.size()) * kernels::size_of(dtype));
  view.data = bytes.data();
}

std::array<std::int64_t, 4> query_extent(const kernels::Problem& p) { return {p.batch, p.heads, p.seq_q, p.head_dim}; }

std::array<std::int64_t, 4> key_extent(const kernels::Problem& p) { return {p.batch, p.kv_heads, p.seq_k, p.head_dim}; }

Inputs make_inputs(const kernels::Problem& problem, kernels::Pass pass, std::uint64_t seed, kernels::ThreadPool& pool) {
  Inputs inputs;
  inputs.q = normal_tensor(query_extent(problem), problem.dtype, seed, kQ, pool);
  inputs.k = normal_tensor(key_extent(problem), problem.dtype, seed, kK, pool);
  inputs.v = normal_tensor(key_extent(problem), problem.dtype, seed, kV, pool);
  if (pass != kernels::Pass::kFwd) {
    inputs.dout = normal_tensor(query_extent(problem), problem.dtype, seed, kDout, pool);
  }
  return inputs;
}

void store_element(HostTensor& tensor, std::int64_t index, float value) {
  switch (tensor.view.dtype) {
    case Dtype::kFp32:
      static_cast<float*>(tensor.view.data)[index] = value;
      return;
    case Dtype::kBf16:
      static_cast<Bf16*>(tensor.view.data)[index] = kernels::to_bf16(value);
      return;
    case Dtype::kFp16:
      static_cast<Fp16*>(tensor.view.data)[index] = kernels::to_fp16(value);
      return;
  }
}

float load_element(const void* data, Dtype dtype, std::int64_t index) {
  switch (dtype) {
    case Dtype::kFp32:
      return static_cast<const float*>(data)[index];
    case Dtype::kBf16:
      return kernels::to_float(static_cast<const Bf16*>(data)[index]);
    case Dtype::kFp16:
      return kernels::to_float(static_cast<const Fp16*>(data)[index]);
  }
  return 0;
}

}  // namespace attnbench::measure
