// One attention problem on the GPU for the flash developer's benchmark: its tensors in any layout, random values, the
// prepared kernel, double-precision results and how far the kernel's are from them. Included by flash_bench.cu alone.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "kernels/cuda/dev/bench_tools.cuh"
#include "kernels/cuda/dev/flash_reference.cuh"
#include "kernels/cuda/flash.hpp"

namespace attnbench::dev {

/// Just enough of a device for prepare and launch.
class BenchDevice : public Device {
 public:
  BenchDevice() {
    cudaDeviceProp prop{};
    CHECK_CUDA(cudaGetDeviceProperties(&prop, 0));
    facts_.kind = DeviceKind::kCuda;
    facts_.name = prop.name;
    facts_.cores = prop.multiProcessorCount;
    facts_.compute_capability = prop.major * 10 + prop.minor;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  const DeviceFacts& facts() const override { return facts_; }
  std::uint64_t memory_free_bytes() const override { return 0; }
  base::Result<void> upload(void*, const void*, std::size_t) override { return {}; }
  base::Result<void> download(void*, const void*, std::size_t) override { return {}; }
  base::Result<void> fill_bytes(void*, unsigned char, std::size_t) override { return {}; }
  base::Result<void> synchronize() override { return {}; }
  void set_threads(int) override {}
  int threads() const override { return 1; }
  void* stream() const override { return stream_; }
  base::Result<std::unique_ptr<Stopwatch>> stopwatch(Launch, const SampleSpec&) override {
    return base::fail(base::ErrorKind::kUnsupported, "none");
  }
  std::unique_ptr<MemoryProbe> memory_probe() override { return nullptr; }
  cudaStream_t cuda_stream() const { return stream_; }

 protected:
  base::Result<void*> raw_allocate(std::size_t bytes) override {
    void* data = nullptr;
    CHECK_CUDA(cudaMalloc(&data, bytes));
    return data;
  }
  void raw_free(void* data, std::size_t) override { cudaFree(data); }

 private:
  DeviceFacts facts_;
  cudaStream_t stream_ = nullptr;
};

enum class Layout { kDense, kRowsApart, kOdd };  // odd: innermost stride 2, base misaligned

template <typename F>
void with_type(Dtype dtype, F&& f) {
  if (dtype == Dtype::kFp32)
    f(float{});
  else if (dtype == Dtype::kBf16)
    f(__nv_bfloat16{});
  else
    f(__half{});
}

struct Holder {
  Tensor tensor;
  Buffer buffer;
  Buffer dense;
  Strides strides() const {
    const auto& t = tensor;
    return {t.stride[0], t.stride[1], t.stride[2], t.stride[3], t.extent[1], t.extent[2], t.extent[3]};
  }
};

inline Holder make(Device& device, const std::array<std::int64_t, 4>& extent, Dtype dtype, Layout layout) {
  Holder h;
  h.tensor.dtype = dtype;
  h.tensor.extent = extent;
  std::int64_t width = extent[3];
  if (layout == Layout::kRowsApart) width = extent[1] * extent[3] + 16;  // [B, S, H, D] with a gap
  if (layout == Layout::kDense) h.tensor.stride = dense_strides(extent);
  if (layout == Layout::kRowsApart) h.tensor.stride = {width * extent[2], extent[3], width, 1};
  if (layout == Layout::kOdd)
    h.tensor.stride = {extent[1] * extent[2] * width * 2, extent[2] * width * 2, width * 2, 2};
  const std::int64_t elements = extent[0] * std::max<std::int64_t>(h.tensor.stride[0], 1) + 64;
  h.buffer = std::move(*device.allocate(elements * size_of(dtype)));
  CHECK_CUDA(cudaMemset(h.buffer.data(), 0xff, elements * size_of(dtype)));
  h.tensor.data = static_cast<char*>(h.buffer.data()) + (layout == Layout::kOdd ? size_of(dtype) : 0);
  return h;
}

struct Point {
  BenchDevice& device;
  Problem problem;
  bool deterministic = false;
  Holder q, k, v, o, dout, dq, dk, dv;
  Buffer lse, workspace, saved;
  AttentionArgs args;

  Point(BenchDevice& d, const Problem& p, Layout layout, bool det) : device(d), problem(p), deterministic(det) {
    const std::array<std::int64_t, 4> query{p.batch, p.heads, p.seq_q, p.head_dim};
    const std::array<std::int64_t, 4> key{p.batch, p.kv_heads, p.seq_k, p.head_dim};
    q = make(d, query, p.dtype, layout);
    k = make(d, key, p.dtype, layout);
    v = make(d, key, p.dtype, layout);
    o = make(d, query, p.dtype, layout);
    dout = make(d, query, p.dtype, layout);
    dq = make(d, query, p.dtype, layout);
    dk = make(d, key, p.dtype, layout);
    dv = make(d, key, p.dtype, layout);
    lse = std::move(*d.allocate(p.batch * p.heads * p.seq_q * 4 + 16));
    CHECK_CUDA(cudaMemset(lse.data(), 0xff, lse.bytes()));
    const Target target{&d.facts(), 1, det};
    workspace = std::move(*d.allocate(cuda_flash().footprint(p, Pass::kFwdBwd, target).workspace_bytes + 256));
    CHECK_CUDA(cudaMemset(workspace.data(), 0xff, workspace.bytes()));
    saved = std::move(*d.allocate(cuda_flash().footprint(p, Pass::kFwdBwd, target).saved_bytes + 256));
    args = {p,           q.tensor,  k.tensor,  v.tensor,  o.tensor,     static_cast<float*>(lse.data()),
            dout.tensor, dq.tensor, dk.tensor, dv.tensor, saved.data(), workspace.data(),
            det};
  }

  void fill(bool keep_dense, std::uint64_t seed) {
    for (Holder* h : {&q, &k, &v, &dout}) {
      const std::int64_t n = h->tensor.size();
      if (keep_dense) h->dense = std::move(*device.allocate(n * 4 + 16));
      ++seed;
      if (n == 0) continue;
      with_type(problem.dtype, [&](auto zero) {
        using T = decltype(zero);
        fill_normal(static_cast<T*>(h->tensor.data), static_cast<float*>(h->dense.data()), h->strides(), n, seed);
      });
    }
    CHECK_CUDA(cudaDeviceSynchronize());
  }

  std::unique_ptr<PreparedKernel> prepare(int fwd, int bwd, bool fold = true) {
    auto kernel = prepare_cuda_flash(args, device, {fwd, bwd, fold});
    if (!kernel) {
      std::printf("prepare: %s\n", kernel.error().message.c_str());
      std::exit(1);
    }
    return std::move(*kernel);
  }

  void poison_outputs() {
    for (Holder* h : {&o, &dq, &dk, &dv}) {
      if (h->buffer) CHECK_CUDA(cudaMemset(h->buffer.data(), 0xff, h->buffer.bytes()));
    }
    CHECK_CUDA(cudaMemset(lse.data(), 0xff, lse.bytes()));
  }
};

struct Truth {
  Buffer o, lse, delta, dq, dk, dv;
};

inline Truth reference(Point& point) {
  const Problem& p = point.problem;
  Device& d = point.device;
  Truth t;
  const std::int64_t rows = p.batch * p.heads * p.seq_q, keys = p.batch * p.kv_heads * p.seq_k;
  t.o = std::move(*d.allocate(rows * p.head_dim * 8 + 16));
  t.dq = std::move(*d.allocate(rows * p.head_dim * 8 + 16));
  t.lse = std::move(*d.allocate(rows * 8 + 16));
  t.delta = std::move(*d.allocate(rows * 8 + 16));
  t.dk = std::move(*d.allocate(keys * p.head_dim * 8 + 16));
  t.dv = std::move(*d.allocate(keys * p.head_dim * 8 + 16));
  const auto f = [](const Holder& h) { return static_cast<const float*>(h.dense.data()); };
  const auto w = [](const Buffer& b) { return static_cast<double*>(b.data()); };
  run_reference(p, {f(point.q), f(point.k), f(point.v), f(point.dout)},
                {w(t.o), w(t.lse), w(t.delta), w(t.dq), w(t.dk), w(t.dv)});
  CHECK_CUDA(cudaDeviceSynchronize());
  return t;
}

inline double error_of(const Holder& h, const Buffer& truth) {
  double error = 0.0;
  with_type(h.tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    error = error_of(static_cast<const T*>(h.tensor.data), static_cast<const double*>(truth.data()), h.strides(),
                     h.tensor.size());
  });
  return error;
}

}  // namespace attnbench::dev
