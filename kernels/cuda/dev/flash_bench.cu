// Developer's tool: checks every tile variant of the flash kernel against double precision and times it.
//
//   flash_bench check     correctness over shapes, masks, strides, dtypes and variants
//   flash_bench small     the reference grid: batch 8, one head, causal; graph replay, hot
//   flash_bench large     batch * length = 16384, heads * head_dim = 2048; graph replay, cold
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/dev/flash_reference.cuh"
#include "kernels/cuda/flash.hpp"
#include "kernels/cuda/flash_config.cuh"
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

/// N(0, 1) in the tensor's type, and the same numbers as dense floats.
template <typename T>
__global__ void fill_normal(T* data, float* dense, Strides s, std::int64_t n, std::uint64_t seed) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  const float u = uniform(seed * 0x1000003ull + 2 * i), w = uniform(seed * 0x1000003ull + 2 * i + 1);
  const T x = convert<T>(sqrtf(-2.0f * logf(u)) * cospif(2.0f * w));
  data[s.at(i)] = x;
  if (dense != nullptr) dense[i] = widen(x);
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

Holder make(Device& device, const std::array<std::int64_t, 4>& extent, Dtype dtype, Layout layout) {
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
  Buffer lse, workspace;
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
    args = {p,           q.tensor,  k.tensor,  v.tensor,  o.tensor, static_cast<float*>(lse.data()),
            dout.tensor, dq.tensor, dk.tensor, dv.tensor, nullptr,  workspace.data(),
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
        fill_normal<T><<<(n + 255) / 256, 256>>>(static_cast<T*>(h->tensor.data), static_cast<float*>(h->dense.data()),
                                                 h->strides(), n, seed);
      });
      CHECK_CUDA(cudaGetLastError());
    }
    CHECK_CUDA(cudaDeviceSynchronize());
  }

  std::unique_ptr<PreparedKernel> prepare(int fwd, int bwd) {
    auto kernel = prepare_cuda_flash(args, device, {fwd, bwd});
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

Truth reference(Point& point) {
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
  const ReferenceProblem r{p.heads, p.kv_heads, p.seq_q, p.seq_k, p.head_dim, p.causal ? 1 : 0, p.window_left, p.scale};
  const auto f = [](const Holder& h) { return static_cast<const float*>(h.dense.data()); };
  const auto w = [](const Buffer& b) { return static_cast<double*>(b.data()); };
  const int shared = static_cast<int>(std::max(p.seq_q, p.seq_k) * 16);
  CHECK_CUDA(cudaFuncSetAttribute(reference_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  CHECK_CUDA(cudaFuncSetAttribute(reference_columns, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  if (rows > 0) {
    reference_rows<<<rows, 128, shared>>>(r, f(point.q), f(point.k), f(point.v), f(point.dout), w(t.o), w(t.lse),
                                          w(t.delta), w(t.dq));
  }
  if (keys > 0) {
    reference_columns<<<keys, 128, shared>>>(r, f(point.q), f(point.k), f(point.v), f(point.dout), w(t.lse), w(t.delta),
                                             w(t.dk), w(t.dv));
  }
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaDeviceSynchronize());
  return t;
}

/// Largest error relative to the largest magnitude, absolute where that is under 1.
double error_of(Point& point, const Holder& h, const Buffer& truth) {
  const std::int64_t n = h.tensor.size();
  if (n == 0) return 0.0;
  double* result = nullptr;
  CHECK_CUDA(cudaMallocManaged(&result, 16));
  result[0] = result[1] = 0.0;
  with_type(h.tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    compare<T><<<(n + 255) / 256, 256>>>(static_cast<const T*>(h.tensor.data), static_cast<const double*>(truth.data()),
                                         h.strides(), n, result);
  });
  CHECK_CUDA(cudaDeviceSynchronize());
  const double error = result[0] / std::max(1.0, result[1]);
  CHECK_CUDA(cudaFree(result));
  return error;
}

int failures = 0;

void check(BenchDevice& device, const Problem& p, Layout layout, std::uint64_t seed, const char* note) {
  static const char* names[] = {"fp32", "bf16", "fp16"};
  const Tolerance bound = cuda_flash().tolerance(p);
  Point point(device, p, layout, false);
  point.fill(true, seed);
  const Truth truth = reference(point);
  Holder lse;
  lse.tensor = {point.lse.data(), Dtype::kFp32, {p.batch, p.heads, p.seq_q, 1}, {p.heads * p.seq_q, p.seq_q, 1, 1}};
  std::string line;
  double worst = 0.0;
  for (int mode = 0; mode < 4; ++mode) {  // (fwd 0, bwd 0), (1, 1), (2, det), (own choice)
    point.args.deterministic = mode == 2;
    auto kernel = mode == 3 ? point.prepare(-1, -1) : point.prepare(mode, mode == 1 ? 1 : 0);
    point.poison_outputs();
    for (const Pass pass : {Pass::kFwd, Pass::kBwd}) {
      auto ok = kernel->launch(pass);
      if (!ok) std::printf("launch: %s\n", ok.error().message.c_str());
      const cudaError_t error = cudaDeviceSynchronize();
      if (error != cudaSuccess) {
        std::printf("FATAL %s after pass %d mode %d: %s\n", note, static_cast<int>(pass), mode,
                    cudaGetErrorString(error));
        std::exit(1);
      }
    }
    const double errors[] = {error_of(point, point.o, truth.o), error_of(point, lse, truth.lse),
                             error_of(point, point.dq, truth.dq), error_of(point, point.dk, truth.dk),
                             error_of(point, point.dv, truth.dv)};
    char text[128];
    std::snprintf(text, sizeof text, " | o %.1e lse %.1e dq %.1e dk %.1e dv %.1e", errors[0], errors[1], errors[2],
                  errors[3], errors[4]);
    bool bad = false;
    for (int i = 0; i < 5; ++i) {
      const double ratio = errors[i] / (i < 2 ? bound.forward : bound.backward);
      worst = std::max(worst, ratio);
      bad = bad || !(ratio <= 1.0);
    }
    if (bad) {
      ++failures;
      line += " mode " + std::to_string(mode) + " BAD" + text;
    } else if (mode == 3) {
      line += text;
    }
  }
  std::printf("%s B%lld H%lld/%lld Sq%lld Sk%lld D%lld c%d w%lld %s: worst/tol %.2f%s\n",
              names[static_cast<int>(p.dtype)], static_cast<long long>(p.batch), static_cast<long long>(p.heads),
              static_cast<long long>(p.kv_heads), static_cast<long long>(p.seq_q), static_cast<long long>(p.seq_k),
              static_cast<long long>(p.head_dim), p.causal, static_cast<long long>(p.window_left), note, worst,
              line.c_str());
}

void run_checks(BenchDevice& device) {
  std::uint64_t seed = 1;
  const auto make_problem = [](std::int64_t b, std::int64_t h, std::int64_t hkv, std::int64_t sq, std::int64_t sk,
                               std::int64_t d, Dtype t, bool causal, std::int64_t window) {
    return Problem{b, h, hkv, sq, sk, d, t, causal, window, default_scale(d)};
  };
  for (const Dtype t : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
    for (const std::int64_t d : {16, 32, 64, 96, 128, 192, 256, 80, 41, 8}) {
      check(device, make_problem(2, 2, 2, 256, 256, d, t, false, -1), Layout::kDense, seed += 10, "full");
      check(device, make_problem(1, 3, 3, 333, 333, d, t, true, -1), Layout::kDense, seed += 10, "causal");
    }
    for (const std::int64_t d : {64, 128, 192}) {
      check(device, make_problem(2, 4, 2, 190, 317, d, t, true, -1), Layout::kRowsApart, seed += 10, "gqa strided");
      check(device, make_problem(1, 4, 1, 317, 100, d, t, true, -1), Layout::kDense, seed += 10, "empty rows");
      check(device, make_problem(1, 2, 2, 300, 300, d, t, true, 37), Layout::kDense, seed += 10, "window");
      check(device, make_problem(1, 2, 1, 200, 300, d, t, false, 100), Layout::kOdd, seed += 10, "odd strides");
      check(device, make_problem(3, 2, 2, 1, 1, d, t, true, -1), Layout::kDense, seed += 10, "one");
      check(device, make_problem(2, 2, 2, 70, 0, d, t, false, -1), Layout::kDense, seed += 10, "no keys");
      check(device, make_problem(2, 2, 2, 0, 70, d, t, false, -1), Layout::kDense, seed += 10, "no queries");
      Problem negative = make_problem(1, 2, 2, 130, 130, d, t, true, -1);
      negative.scale = -0.3f;
      check(device, negative, Layout::kDense, seed += 10, "negative scale");
    }
    for (const std::int64_t d : {16, 32, 64}) {
      check(device, make_problem(8, 1, 1, 1024, 1024, d, t, true, -1), Layout::kDense, seed += 10, "grid");
    }
    check(device, make_problem(1, 1, 1, 4096, 4096, 64, t, true, -1), Layout::kDense, seed += 10, "grid");
  }
  std::printf("checks done, %d bad\n", failures);
}

/// Values at masked positions must not leak; NaN stays in its row.
void run_nan_checks(BenchDevice& device) {
  for (const std::int64_t d : {64, 192}) {
    Problem p{1, 1, 1, 200, 200, d, Dtype::kBf16, true, -1, default_scale(d)};
    for (int mode = 0; mode < 4; ++mode) {
      Point point(device, p, Layout::kDense, false);
      point.fill(false, 77 + mode);
      const std::int64_t row = 150;
      const std::vector<unsigned short> nan(d, 0x7fc0);
      Holder* target[] = {&point.v, &point.k, &point.q, &point.dout};
      CHECK_CUDA(cudaMemcpy(static_cast<char*>(target[mode]->tensor.data) + row * d * 2, nan.data(), d * 2,
                            cudaMemcpyHostToDevice));
      for (const bool det : {false, true}) {
        point.args.deterministic = det;
        auto kernel = point.prepare(det ? 2 : 0, 0);
        point.poison_outputs();
        (void)kernel->launch(Pass::kFwd);
        (void)kernel->launch(Pass::kBwd);
        CHECK_CUDA(cudaDeviceSynchronize());
        std::printf("nan in %s row 150 d%lld det%d:", std::array{"v", "k", "q", "dout"}[mode],
                    static_cast<long long>(d), det);
        for (Holder* h : {&point.o, &point.dq, &point.dk, &point.dv}) {
          std::vector<unsigned short> x(200 * d);
          CHECK_CUDA(cudaMemcpy(x.data(), h->tensor.data, x.size() * 2, cudaMemcpyDeviceToHost));
          int first = -1, last = -1, rows = 0;
          for (int r = 0; r < 200; ++r) {
            bool any = false;
            for (std::int64_t c = 0; c < d; ++c) any = any || (x[r * d + c] & 0x7fff) > 0x7f80;
            if (any) {
              first = first < 0 ? r : first;
              last = r;
              ++rows;
            }
          }
          std::printf(" %d..%d (%d)", first, last, rows);
        }
        std::printf("\n");
      }
    }
  }
  std::printf(
      "expected o dq dk dv: v: o, dq 150..199 (50), dk 0..199 (200), dv none; k: o, dq 150..199, dk, dv 0..199;\n"
      "  q: o, dq 150 (1), dk dv 0..150 (151); dout: o none, dq 150, dk dv 0..150 (151)\n");
}

/// Median time of one launch, us. hot: `pack` launches per graph; cold: a flush before each single launch.
double time_us(BenchDevice& device, const std::function<void()>& launch, bool cold, double budget_ms) {
  const cudaStream_t s = device.cuda_stream();
  static char* flush = nullptr;
  constexpr std::size_t kFlush = 256u << 20;
  if (flush == nullptr) CHECK_CUDA(cudaMalloc(&flush, kFlush));
  launch();
  CHECK_CUDA(cudaStreamSynchronize(s));
  const int pack = cold ? 1 : 20;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < pack; ++i) launch();
  CHECK_CUDA(cudaStreamEndCapture(s, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin = nullptr, end = nullptr;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  CHECK_CUDA(cudaGraphLaunch(exec, s));
  std::vector<double> samples;
  double spent = 0.0;
  while (samples.size() < 5 || (samples.size() < 30 && spent < budget_ms)) {
    if (cold) CHECK_CUDA(cudaMemsetAsync(flush, static_cast<int>(samples.size()), kFlush, s));
    CHECK_CUDA(cudaEventRecord(begin, s));
    CHECK_CUDA(cudaGraphLaunch(exec, s));
    CHECK_CUDA(cudaEventRecord(end, s));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms = 0.0f;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    samples.push_back(ms * 1000.0 / pack);
    spent += ms;
  }
  std::sort(samples.begin(), samples.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  return samples[samples.size() / 2];
}

struct Bar {
  const char* dtype;
  int d, seq;
  double fwd, fwd_bwd;
};
// Times of the fastest flash-attention peer on an H200 inside a CUDA graph, us: FlashAttention-2 (bf16) and the
// memory-efficient kernel (fp32).
constexpr Bar kSmallBars[] = {
    {"bf16", 16, 256, 8.99, 24.64},   {"bf16", 16, 1024, 14.48, 51.81},   {"bf16", 16, 4096, 90.20, 279.53},
    {"bf16", 32, 256, 7.11, 21.30},   {"bf16", 32, 1024, 13.05, 47.68},   {"bf16", 32, 4096, 81.61, 261.81},
    {"bf16", 64, 256, 8.38, 28.28},   {"bf16", 64, 1024, 16.72, 66.08},   {"bf16", 64, 4096, 114.90, 379.80},
    {"fp32", 16, 256, 26.74, 90.63},  {"fp32", 16, 1024, 92.93, 299.73},  {"fp32", 16, 4096, 679.97, 2255.53},
    {"fp32", 32, 256, 27.00, 91.70},  {"fp32", 32, 1024, 93.37, 301.55},  {"fp32", 32, 4096, 682.35, 2269.27},
    {"fp32", 64, 256, 30.10, 101.05}, {"fp32", 64, 1024, 105.90, 341.19}, {"fp32", 64, 4096, 783.35, 2582.43}};

void run_small(BenchDevice& device) {
  std::printf("small grid, hot graph, us: fwd v0 v1 v2 [bar] | bwd v0 v1 det [bar] | bar/best\n");
  for (const Bar& bar : kSmallBars) {
    const Dtype t = std::strcmp(bar.dtype, "bf16") == 0 ? Dtype::kBf16 : Dtype::kFp32;
    const Problem p{8, 1, 1, bar.seq, bar.seq, bar.d, t, true, -1, default_scale(bar.d)};
    Point point(device, p, Layout::kDense, false);
    point.fill(false, 5);
    std::printf("%s d%d S%d:", bar.dtype, bar.d, bar.seq);
    double best_fwd = 1e9, best_bwd = 1e9;
    for (int v = 0; v < flash_cuda::kFwdVariants; ++v) {
      auto kernel = point.prepare(v, 0);
      const double us = time_us(
          device, [&] { (void)kernel->launch(Pass::kFwd); }, false, 60);
      best_fwd = std::min(best_fwd, us);
      std::printf(" %.2f", us);
    }
    std::printf(" [%.2f] |", bar.fwd);
    for (int v = 0; v < 3; ++v) {
      point.args.deterministic = v == 2;
      auto kernel = point.prepare(0, v == 2 ? -1 : v);
      const double us = time_us(
          device, [&] { (void)kernel->launch(Pass::kBwd); }, false, 60);
      best_bwd = std::min(best_bwd, us);
      std::printf(" %.2f", us);
    }
    auto chosen = point.prepare(-1, -1);
    std::printf(" [%.2f] | %.2f %.2f\n", bar.fwd_bwd - bar.fwd, bar.fwd / best_fwd, (bar.fwd_bwd - bar.fwd) / best_bwd);
  }
}

// FlashAttention-2 on the same GPU, ms, S = 512, 1024, ... 16384.
struct LargeBar {
  int d, causal;
  double fwd[6], bwd[6];
};
constexpr LargeBar kLargeBars[] = {
    {64, 0, {0.2604, 0.4776, 0.9229, 1.8129, 3.5878, 7.1386}, {1.0053, 1.5870, 2.7679, 5.0861, 9.7474, 19.2220}},
    {64, 1, {0.2238, 0.3187, 0.5259, 0.9768, 1.8763, 3.6808}, {0.8048, 1.1128, 1.7320, 2.9648, 5.3769, 10.0455}},
    {128, 0, {0.2264, 0.4144, 0.7977, 1.5568, 3.0637, 6.1940}, {0.9530, 1.5073, 2.5939, 4.7528, 9.1779, 17.9010}},
    {128, 1, {0.1878, 0.2782, 0.4833, 0.8988, 1.7325, 3.4156}, {0.7336, 1.0119, 1.5751, 2.6894, 4.8899, 8.7981}},
    {256, 0, {0.2411, 0.4476, 0.8614, 1.6913, 3.3650, 6.7096}, {1.0557, 1.6940, 3.0117, 5.6235, 10.8078, 21.4065}},
    {256, 1, {0.1648, 0.2774, 0.5089, 0.9666, 1.8852, 3.7322}, {0.7916, 1.1347, 1.8095, 3.1453, 5.6932, 10.7766}}};

void run_large(BenchDevice& device) {
  std::printf("large grid bf16, cold graph, ms (TFLOP/s): fwd v0 v1 | bwd v0 v1 det | peer/best fwd bwd\n");
  double log_fwd = 0.0, log_bwd = 0.0;
  int cells = 0;
  for (const LargeBar& bar : kLargeBars) {
    for (int i = 0; i < 6; ++i) {
      const std::int64_t seq = 512 << i;
      const Problem p{16384 / seq, 2048 / bar.d, 2048 / bar.d,    seq, seq,
                      bar.d,       Dtype::kBf16, bar.causal != 0, -1,  default_scale(bar.d)};
      Point point(device, p, Layout::kDense, false);
      point.fill(false, 9);
      const double flops = 4.0 * p.batch * p.heads * seq * seq * bar.d * (bar.causal ? 0.5 : 1.0);
      std::printf("d%d c%d S%lld:", bar.d, bar.causal, static_cast<long long>(seq));
      double best_fwd = 1e9, best_bwd = 1e9;
      for (int v = 0; v < 2; ++v) {
        auto kernel = point.prepare(v, 0);
        const double ms = time_us(
                              device, [&] { (void)kernel->launch(Pass::kFwd); }, true, 40) /
                          1000;
        best_fwd = std::min(best_fwd, ms);
        std::printf(" %.3f (%.0f)", ms, flops / ms * 1e-9);
      }
      std::printf(" |");
      for (int v = 0; v < 3; ++v) {
        if (v == 2 && seq != 2048) continue;
        point.args.deterministic = v == 2;
        auto kernel = point.prepare(0, v == 2 ? 0 : v);
        const double ms = time_us(
                              device, [&] { (void)kernel->launch(Pass::kBwd); }, true, 40) /
                          1000;
        if (v < 2) best_bwd = std::min(best_bwd, ms);
        std::printf(" %.3f (%.0f)", ms, 2.5 * flops / ms * 1e-9);
      }
      std::printf(" | %.2f %.2f\n", bar.fwd[i] / best_fwd, bar.bwd[i] / best_bwd);
      log_fwd += std::log(bar.fwd[i] / best_fwd);
      log_bwd += std::log(bar.bwd[i] / best_bwd);
      ++cells;
    }
  }
  std::printf("geometric mean against the peer: fwd %.3f bwd %.3f\n", std::exp(log_fwd / cells),
              std::exp(log_bwd / cells));
}

}  // namespace attnbench::dev

int main(int argc, char** argv) {
  attnbench::dev::BenchDevice device;
  std::printf("%s, %d multiprocessors\n", device.facts().name.c_str(), device.facts().cores);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "check") attnbench::dev::run_checks(device);
    if (word == "nan") attnbench::dev::run_nan_checks(device);
    if (word == "small") attnbench::dev::run_small(device);
    if (word == "large") attnbench::dev::run_large(device);
  }
  return attnbench::dev::failures == 0 ? 0 : 1;
}
