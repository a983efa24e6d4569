// Developer's tool: checks the wgmma backward against double precision and times it, without the harness.
//
//   attnbench_hopper_backward_bench check          correctness over shapes and masks
//   attnbench_hopper_backward_bench time [S ...]   batch * length = 16384, heads * head_dim = 2048; cold, medians
//   attnbench_hopper_backward_bench ordered        the same in deterministic mode, three lengths
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/dev/flash_reference.cuh"
#include "kernels/cuda/hopper/backward_kernel.cuh"
#include "kernels/cuda/hopper/backward_rows.cuh"
#include "kernels/cuda/hopper/tensor_map.hpp"

namespace attnbench::dev {
namespace {

using namespace kernels;
namespace hp = kernels::hopper;
using Element = __nv_bfloat16;

#define CHECK_CUDA(call)                                                                         \
  do {                                                                                           \
    const cudaError_t check_error = (call);                                                      \
    if (check_error != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_error)); \
      std::exit(1);                                                                              \
    }                                                                                            \
  } while (false)

int failures = 0;

__device__ float uniform(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  return (static_cast<float>(x >> 40) + 0.5f) * (1.0f / 16777216.0f);
}

__global__ void fill_normal(Element* data, float* dense, std::int64_t n, std::uint64_t seed) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  const float u = uniform(seed * 0x1000003ull + 2 * i), w = uniform(seed * 0x1000003ull + 2 * i + 1);
  data[i] = __float2bfloat16(sqrtf(-2.0f * logf(u)) * cospif(2.0f * w));
  if (dense != nullptr) dense[i] = __bfloat162float(data[i]);
}

__global__ void fill_constant(float* data, std::int64_t n, float value) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) data[i] = value;
}

__global__ void narrow(const double* from, Element* to, std::int64_t n) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) to[i] = __double2bfloat16(from[i]);
}

__global__ void narrow(const double* from, float* to, std::int64_t n) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) to[i] = static_cast<float>(from[i]);
}

__global__ void compare(const Element* data, const double* truth, std::int64_t n, double* result) {
  const std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  double error = fabs(static_cast<double>(__bfloat162float(data[i])) - truth[i]);
  if (!(error < 1e30)) error = 1e30;
  atomicMax(reinterpret_cast<unsigned long long*>(result), __double_as_longlong(error));
  atomicMax(reinterpret_cast<unsigned long long*>(result + 1), __double_as_longlong(fabs(truth[i])));
}

template <typename V>
V* make(std::int64_t n) {
  V* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, n * sizeof(V) + 256));
  CHECK_CUDA(cudaMemset(data, 0xff, n * sizeof(V)));
  return data;
}

unsigned blocks(std::int64_t n) { return static_cast<unsigned>((n + 255) / 256); }

struct Case {
  Problem p;
  Element *q, *k, *v, *o, *dout, *dq, *dk, *dv;
  float *lse, *stat_lse, *stat_delta, *dq_sum;
  int *counter, *turns;
  std::int64_t queries, keys;  // elements
  std::vector<void*> owned;

  explicit Case(const Problem& problem) : p(problem) {
    queries = p.batch * p.heads * p.seq_q * p.head_dim;
    keys = p.batch * p.kv_heads * p.seq_k * p.head_dim;
    const std::int64_t padded = p.batch * p.heads * ((p.seq_q + 127) / 128 * 128);
    q = make<Element>(queries), o = make<Element>(queries), dout = make<Element>(queries), dq = make<Element>(queries);
    k = make<Element>(keys), v = make<Element>(keys), dk = make<Element>(keys), dv = make<Element>(keys);
    lse = make<float>(p.batch * p.heads * p.seq_q);
    stat_lse = make<float>(padded), stat_delta = make<float>(padded), dq_sum = make<float>(padded * p.head_dim);
    counter = make<int>(1), turns = make<int>(padded / 32);
    owned = {counter, turns, q, k, v, o, dout, dq, dk, dv, lse, stat_lse, stat_delta, dq_sum};
  }
  ~Case() {
    for (void* data : owned) cudaFree(data);
  }
  Tensor tensor(Element* data, bool query) const {
    const std::array<std::int64_t, 4> extent{p.batch, query ? p.heads : p.kv_heads, query ? p.seq_q : p.seq_k,
                                             p.head_dim};
    return {data, Dtype::kBf16, extent, dense_strides(extent)};
  }
};

template <int D, int M, bool kOrdered>
struct Launcher {
  using Shape = hp::BackwardShape<D, M, kOrdered>;
  CUtensorMap q, k, v, dout;
  hp::BackwardParams params{};
  hp::RowsParams rows{};
  hp::ConvertRowsParams convert{};
  unsigned grid = 0;

  explicit Launcher(const Case& c) {
    const Problem& p = c.p;
    CHECK_CUDA(cudaFuncSetAttribute(hp::backward_kernel<Element, Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    Shape::kSharedBytes));
    if (!hp::make_tensor_map(q, c.tensor(c.q, true), M) || !hp::make_tensor_map(k, c.tensor(c.k, false), 128) ||
        !hp::make_tensor_map(v, c.tensor(c.v, false), 128) || !hp::make_tensor_map(dout, c.tensor(c.dout, true), M)) {
      std::printf("no tensor map\n");
      std::exit(1);
    }
    const int tiles_m = static_cast<int>((p.seq_q + M - 1) / M);
    const int sq = static_cast<int>(p.seq_q), sk = static_cast<int>(p.seq_k), h = static_cast<int>(p.heads);
    params.shape = {h,        static_cast<int>(p.heads / p.kv_heads), sq,      sk,  D,
                    p.causal, static_cast<int>(p.window_left),        p.scale, 0.f, 0};
    params.order.tiles = static_cast<int>((p.seq_k + 127) / 128);
    params.order.heads = p.batch * p.kv_heads;
    const std::int64_t head_bytes = 8 * p.seq_q * D * (p.heads / p.kv_heads);
    params.order.section =
        static_cast<int>(std::clamp<std::int64_t>((std::int64_t{32} << 20) / head_bytes, 1, params.order.heads));
    params.rows = tiles_m * M;
    params.lse = c.stat_lse;
    params.delta = c.stat_delta;
    params.dq_sum = c.dq_sum;
    const long long sd = p.seq_k * D, qd = p.seq_q * D;
    params.tiles = static_cast<int>(params.order.tiles * params.order.heads);
    params.first_tile = kOrdered && p.causal ? params.order.tiles - 1 : 0;
    params.tile_step = kOrdered && p.causal ? -1 : 1;
    params.counter = c.counter;
    params.turns = c.turns;
    params.k = {c.k, p.kv_heads * p.seq_k * D, p.seq_k * D, D};
    params.dk = {c.dk, p.kv_heads * sd, sd, D};
    params.dv = {c.dv, p.kv_heads * sd, sd, D};
    rows = {{c.o, p.heads * qd, qd, D},
            {c.dout, p.heads * qd, qd, D},
            c.lse,
            c.stat_lse,
            c.stat_delta,
            c.dq_sum,
            c.counter,
            c.turns,
            kOrdered ? p.batch * p.heads * params.rows / M * 2 : 0,
            h,
            sq,
            params.rows,
            p.batch * p.heads * params.rows};
    convert = {c.dq_sum, c.dq, p.heads * qd, qd, D, h, sq, tiles_m * 2, p.scale};
    cudaDeviceProp prop{};
    CHECK_CUDA(cudaGetDeviceProperties(&prop, 0));
    grid = static_cast<unsigned>(std::min(prop.multiProcessorCount, params.tiles));
  }
  void prepare(cudaStream_t s) const {
    hp::backward_rows_kernel<Element, D><<<blocks(rows.all_rows * D / 8), 256, 0, s>>>(rows);
  }
  void main(cudaStream_t s) const {
    hp::backward_kernel<Element, Shape><<<grid, 384, Shape::kSharedBytes, s>>>(q, k, v, dout, params);
  }
  void unseen(cudaStream_t s) const {
    if (params.shape.window < 0 || params.shape.seq_k - params.shape.seq_q <= params.shape.window) return;
    hp::backward_unseen_kernel<D, M><<<static_cast<unsigned>(params.tiles), 128, 0, s>>>(params);
  }
  void finish(cudaStream_t s) const {
    hp::backward_convert_kernel<Element, D, M>
        <<<static_cast<unsigned>(rows.all_rows * D / hp::kSliceFloats), 128, 0, s>>>(convert);
  }
  void operator()(cudaStream_t s) const {
    prepare(s);
    main(s);
    unseen(s);
    finish(s);
  }
};

double error_of(const Element* data, const double* truth, std::int64_t n) {
  double* result = nullptr;
  CHECK_CUDA(cudaMallocManaged(&result, 16));
  result[0] = result[1] = 0.0;
  compare<<<blocks(n), 256>>>(data, truth, n, result);
  CHECK_CUDA(cudaDeviceSynchronize());
  const double error = result[0] / std::max(1.0, result[1]);
  cudaFree(result);
  return error;
}

template <int D, int M, bool kOrdered>
void check(Problem p, const char* note) {
  static std::uint64_t seed = 1;
  p.head_dim = D;
  p.scale = default_scale(D);
  Case c(p);
  const std::int64_t rows = p.batch * p.heads * p.seq_q;
  float* dense[4];
  Element* inputs[4] = {c.q, c.k, c.v, c.dout};
  for (int i = 0; i < 4; ++i) {
    const std::int64_t n = i == 0 || i == 3 ? c.queries : c.keys;
    dense[i] = make<float>(n);
    fill_normal<<<blocks(n), 256>>>(inputs[i], dense[i], n, seed++);
  }
  double *o = make<double>(c.queries), *lse = make<double>(rows), *delta = make<double>(rows),
         *dq = make<double>(c.queries), *dk = make<double>(c.keys), *dv = make<double>(c.keys);
  const ReferenceProblem r{p.heads, p.kv_heads, p.seq_q, p.seq_k, D, p.causal, p.window_left, p.scale};
  const int shared = static_cast<int>(std::max(p.seq_q, p.seq_k) * 16);
  CHECK_CUDA(cudaFuncSetAttribute(reference_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  CHECK_CUDA(cudaFuncSetAttribute(reference_columns, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  reference_rows<<<static_cast<unsigned>(rows), 128, shared>>>(r, dense[0], dense[1], dense[2], dense[3], o, lse, delta,
                                                               dq);
  reference_columns<<<static_cast<unsigned>(p.batch * p.kv_heads * p.seq_k), 128, shared>>>(
      r, dense[0], dense[1], dense[2], dense[3], lse, delta, dk, dv);
  narrow<<<blocks(c.queries), 256>>>(o, c.o, c.queries);
  narrow<<<blocks(rows), 256>>>(lse, c.lse, rows);
  CHECK_CUDA(cudaDeviceSynchronize());
  Launcher<D, M, kOrdered> launch(c);
  launch(nullptr);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaDeviceSynchronize());
  const double errors[3] = {error_of(c.dq, dq, c.queries), error_of(c.dk, dk, c.keys), error_of(c.dv, dv, c.keys)};
  bool bad = false;
  for (const double error : errors) bad = bad || !(error <= 2e-2);
  failures += bad;
  std::printf("D%d M%d o%d B%lld H%lld/%lld Sq%lld Sk%lld c%d w%lld %s: dq %.1e dk %.1e dv %.1e%s\n", D, M, kOrdered,
              static_cast<long long>(p.batch), static_cast<long long>(p.heads), static_cast<long long>(p.kv_heads),
              static_cast<long long>(p.seq_q), static_cast<long long>(p.seq_k), p.causal,
              static_cast<long long>(p.window_left), note, errors[0], errors[1], errors[2], bad ? " BAD" : "");
  for (float* data : dense) cudaFree(data);
  for (double* data : {o, lse, delta, dq, dk, dv}) cudaFree(data);
}

template <int D, int M, bool kOrdered>
void run_checks() {
  const auto make_problem = [](std::int64_t b, std::int64_t h, std::int64_t kv, std::int64_t sq, std::int64_t sk,
                               bool causal, std::int64_t window) {
    return Problem{b, h, kv, sq, sk, D, Dtype::kBf16, causal, window, 1.f};
  };
  check<D, M, kOrdered>(make_problem(1, 1, 1, 128, 128, false, -1), "one");
  check<D, M, kOrdered>(make_problem(2, 3, 3, 512, 512, false, -1), "full");
  check<D, M, kOrdered>(make_problem(2, 3, 3, 1024, 1024, true, -1), "causal");
  check<D, M, kOrdered>(make_problem(1, 2, 2, 333, 217, false, -1), "odd");
  check<D, M, kOrdered>(make_problem(1, 2, 2, 333, 333, true, -1), "odd causal");
  check<D, M, kOrdered>(make_problem(1, 2, 2, 190, 317, true, -1), "more keys");
  check<D, M, kOrdered>(make_problem(1, 2, 2, 417, 130, true, -1), "empty rows");
  check<D, M, kOrdered>(make_problem(2, 4, 2, 300, 300, true, 37), "window gqa");
  check<D, M, kOrdered>(make_problem(2, 4, 1, 200, 300, false, 100), "window");
  check<D, M, kOrdered>(make_problem(1, 2, 2, 100, 700, true, 50), "unseen keys");
  check<D, M, kOrdered>(make_problem(2, 2, 2, 1, 1, true, -1), "one row");
  check<D, M, kOrdered>(make_problem(8, 16, 16, 640, 640, true, -1), "many");
}

template <typename F>
double time_us(F&& launch, int most) {
  static char* flush = nullptr;
  constexpr std::size_t kFlush = 256u << 20;
  if (flush == nullptr) CHECK_CUDA(cudaMalloc(&flush, kFlush));
  cudaEvent_t begin = nullptr, end = nullptr;
  CHECK_CUDA(cudaEventCreate(&begin));
  CHECK_CUDA(cudaEventCreate(&end));
  std::vector<double> samples;
  for (int i = 0; i < most + 2; ++i) {
    CHECK_CUDA(cudaMemsetAsync(flush, i, kFlush, nullptr));
    CHECK_CUDA(cudaEventRecord(begin, nullptr));
    launch();
    CHECK_CUDA(cudaEventRecord(end, nullptr));
    CHECK_CUDA(cudaEventSynchronize(end));
    float ms = 0.0f;
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 2) samples.push_back(ms * 1000.0);
  }
  CHECK_CUDA(cudaGetLastError());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

// The faster of FlashAttention-3 and cuDNN on the same kind of GPU, TFLOP/s, S = 512 ... 16384.
constexpr double kBars[2][2][6] = {{{328, 420, 474, 502, 502, 524}, {193, 301, 416, 471, 510, 510}},
                                   {{354, 489, 524, 565, 597, 598}, {223, 359, 462, 526, 562, 593}}};

template <int D, int M, bool kOrdered>
void time_grid(const std::vector<int>& lengths) {
  for (int causal = 0; causal < 2; ++causal) {
    for (const int seq : lengths) {
      const Problem p{16384 / seq, 2048 / D, 2048 / D, seq, seq, D, Dtype::kBf16, causal != 0, -1, default_scale(D)};
      Case c(p);
      fill_normal<<<blocks(c.queries), 256>>>(c.q, nullptr, c.queries, 1);
      fill_normal<<<blocks(c.queries), 256>>>(c.o, nullptr, c.queries, 2);
      fill_normal<<<blocks(c.queries), 256>>>(c.dout, nullptr, c.queries, 3);
      fill_normal<<<blocks(c.keys), 256>>>(c.k, nullptr, c.keys, 4);
      fill_normal<<<blocks(c.keys), 256>>>(c.v, nullptr, c.keys, 5);
      const std::int64_t rows = p.batch * p.heads * p.seq_q;
      fill_constant<<<blocks(rows), 256>>>(c.lse, rows, logf(static_cast<float>(seq)) + 0.5f);
      Launcher<D, M, kOrdered> launch(c);
      const double us = time_us([&] { launch(nullptr); }, 15);
      const double rows_us = time_us([&] { launch.prepare(nullptr); }, 7);
      const double main_us = time_us(
          [&] {
            cudaMemsetAsync(c.counter, 0, 4, nullptr);
            cudaMemsetAsync(c.turns, 0, rows / M * 8, nullptr);
            launch.main(nullptr);
          },
          7);
      const double finish_us = time_us([&] { launch.finish(nullptr); }, 7);
      const double flops = 10.0 * p.batch * p.heads * seq * seq * D * (causal ? 0.5 : 1.0);
      int cell = 0;
      while (512 << cell < seq) ++cell;
      const double bar = kBars[D == 128][causal][std::min(cell, 5)];
      std::printf(
          "D%d M%d o%d c%d S%d: %.0f us, %.0f TFLOP/s, %.2f of the bar %.0f | rows %.0f main %.0f (%.0f) convert "
          "%.0f\n",
          D, M, kOrdered, causal, seq, us, flops / us * 1e-6, flops / us * 1e-6 / bar, bar, rows_us, main_us,
          flops / main_us * 1e-6, finish_us);
    }
  }
}

}  // namespace
}  // namespace attnbench::dev

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  using namespace attnbench::dev;
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "check") {
    run_checks<128, 64, false>();
    run_checks<64, 128, false>();
    run_checks<128, 64, true>();
    run_checks<64, 128, true>();
    std::printf("%d bad\n", failures);
  }
  if (word == "time") {
    std::vector<int> lengths;
    for (int i = 2; i < argc; ++i) lengths.push_back(std::atoi(argv[i]));
    if (lengths.empty()) lengths = {512, 1024, 2048, 4096, 8192, 16384};
    time_grid<128, 64, false>(lengths);
    time_grid<64, 128, false>(lengths);
  }
  if (word == "ordered") {
    time_grid<128, 64, true>({512, 2048, 8192});
    time_grid<64, 128, true>({512, 2048, 8192});
  }
  return failures == 0 ? 0 : 1;
}
