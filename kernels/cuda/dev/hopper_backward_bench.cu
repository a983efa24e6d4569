// Developer's tool: checks the wgmma backward against double precision and times it, without the harness.
//
//   attnbench_hopper_backward_bench check [D]               correctness over shapes and masks; D 0: every head_dim
//   attnbench_hopper_backward_bench time [D [S ...]]        batch * S = 16384, heads * D <= 2048; cold, medians
//   attnbench_hopper_backward_bench ordered [D [S ...]]     the same in deterministic mode, three lengths
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/dev/bench_tools.cuh"
#include "kernels/cuda/dev/flash_reference.cuh"
#include "kernels/cuda/hopper/backward_kernel.cuh"
#include "kernels/cuda/hopper/backward_rows.cuh"
#include "kernels/cuda/hopper/backward_wide.cuh"
#include "kernels/cuda/hopper/tensor_map.hpp"

namespace attnbench::dev {
namespace {

using namespace kernels;
namespace hp = kernels::hopper;
using Element = __nv_bfloat16;

int failures = 0;

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

template <typename V>
V* make(std::int64_t n) {
  V* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, n * sizeof(V) + 256));
  CHECK_CUDA(cudaMemset(data, 0xff, n * sizeof(V)));
  return data;
}

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
    stat_lse = make<float>(padded), stat_delta = make<float>(padded);
    dq_sum = make<float>(padded * hp::chunks_of(static_cast<int>(p.head_dim)) * 64);
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

template <typename Shape>
struct Launcher {
  static constexpr int D = Shape::kHeadDim, M = Shape::kTileM, N = Shape::kKeys;
  static constexpr bool kOrdered = Shape::kOrdered;
  CUtensorMap q, k, v, dout;
  hp::BackwardParams params{};
  hp::RowsParams rows{};
  hp::ConvertRowsParams convert{};
  unsigned grid = 0;

  explicit Launcher(const Case& c) {
    const Problem& p = c.p;
    CHECK_CUDA(cudaFuncSetAttribute(kernel_of<Element>(Shape{}), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    Shape::kSharedBytes));
    if (!hp::make_tensor_map(q, c.tensor(c.q, true), M) || !hp::make_tensor_map(k, c.tensor(c.k, false), N) ||
        !hp::make_tensor_map(v, c.tensor(c.v, false), N) || !hp::make_tensor_map(dout, c.tensor(c.dout, true), M)) {
      std::printf("no tensor map\n");
      std::exit(1);
    }
    const int tiles_m = static_cast<int>((p.seq_q + M - 1) / M);
    const int sq = static_cast<int>(p.seq_q), sk = static_cast<int>(p.seq_k), h = static_cast<int>(p.heads);
    params.shape = {h,        static_cast<int>(p.heads / p.kv_heads), sq,      sk,  D,
                    p.causal, static_cast<int>(p.window_left),        p.scale, 0.f, 0};
    params.order.tiles = static_cast<int>((p.seq_k + N - 1) / N);
    params.order.heads = p.batch * p.kv_heads;
    const std::int64_t head_bytes = 8 * p.seq_q * D * (p.heads / p.kv_heads);
    params.order.section =
        static_cast<int>(std::clamp<std::int64_t>((std::int64_t{32} << 20) / head_bytes, 1, params.order.heads));
    params.rows = tiles_m * M;
    params.saved = nullptr;
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
    convert = {c.dq_sum, c.dq, p.heads * qd, qd, D, h, sq, tiles_m * (M / 64) * Shape::kChunks, p.scale};
    cudaDeviceProp prop{};
    CHECK_CUDA(cudaGetDeviceProperties(&prop, 0));
    grid = static_cast<unsigned>(std::min(prop.multiProcessorCount, params.tiles));
  }
  void prepare(cudaStream_t s) const {
    hp::backward_rows_kernel<Element, D><<<blocks(rows.all_rows * hp::kRowLanes<D>), 256, 0, s>>>(rows);
  }
  void main(cudaStream_t s) const {
    kernel_of<Element>(Shape{})<<<grid, Shape::kThreads, Shape::kSharedBytes, s>>>(q, k, v, dout, params);
  }
  void unseen(cudaStream_t s) const {
    if (params.shape.window < 0 || params.shape.seq_k - params.shape.seq_q <= params.shape.window) return;
    hp::backward_unseen_kernel<D, M, N><<<static_cast<unsigned>(params.tiles), N, 0, s>>>(params);
  }
  void finish(cudaStream_t s) const {
    hp::backward_convert_kernel<Element, D>
        <<<static_cast<unsigned>(rows.all_rows / 64 * Shape::kChunks), 128, 0, s>>>(convert);
  }
  void operator()(cudaStream_t s) const {
    prepare(s);
    main(s);
    unseen(s);
    finish(s);
  }
};

template <typename Shape>
void check(Problem p, const char* note) {
  constexpr int D = Shape::kHeadDim, M = Shape::kTileM;
  constexpr bool kOrdered = Shape::kOrdered;
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
    fill_normal(inputs[i], dense[i], dense_elements(n), n, seed++);
  }
  double *o = make<double>(c.queries), *lse = make<double>(rows), *delta = make<double>(rows),
         *dq = make<double>(c.queries), *dk = make<double>(c.keys), *dv = make<double>(c.keys);
  run_reference(p, {dense[0], dense[1], dense[2], dense[3]}, {o, lse, delta, dq, dk, dv});
  narrow<<<blocks(c.queries), 256>>>(o, c.o, c.queries);
  narrow<<<blocks(rows), 256>>>(lse, c.lse, rows);
  CHECK_CUDA(cudaDeviceSynchronize());
  Launcher<Shape> launch(c);
  launch(nullptr);
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaDeviceSynchronize());
  const double errors[3] = {error_of(c.dq, dq, dense_elements(c.queries), c.queries),
                            error_of(c.dk, dk, dense_elements(c.keys), c.keys),
                            error_of(c.dv, dv, dense_elements(c.keys), c.keys)};
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

template <typename Shape>
void run_checks() {
  const auto make_problem = [](std::int64_t b, std::int64_t h, std::int64_t kv, std::int64_t sq, std::int64_t sk,
                               bool causal, std::int64_t window) {
    return Problem{b, h, kv, sq, sk, Shape::kHeadDim, Dtype::kBf16, causal, window, 1.f};
  };
  check<Shape>(make_problem(1, 1, 1, 128, 128, false, -1), "one");
  check<Shape>(make_problem(2, 3, 3, 512, 512, false, -1), "full");
  check<Shape>(make_problem(2, 3, 3, 1024, 1024, true, -1), "causal");
  check<Shape>(make_problem(1, 2, 2, 333, 217, false, -1), "odd");
  check<Shape>(make_problem(1, 2, 2, 333, 333, true, -1), "odd causal");
  check<Shape>(make_problem(1, 2, 2, 190, 317, true, -1), "more keys");
  check<Shape>(make_problem(1, 2, 2, 417, 130, true, -1), "empty rows");
  check<Shape>(make_problem(2, 4, 2, 300, 300, true, 37), "window gqa");
  check<Shape>(make_problem(2, 4, 1, 200, 300, false, 100), "window");
  check<Shape>(make_problem(1, 2, 2, 100, 700, true, 50), "unseen keys");
  check<Shape>(make_problem(2, 2, 2, 1, 1, true, -1), "one row");
  check<Shape>(make_problem(8, 16, 16, 640, 640, true, -1), "many");
}

/// Median time of a launch, cold, us.
double time_us(cudaStream_t stream, const std::function<void()>& launch, std::size_t samples) {
  Timer timer(stream, true, launch);
  return median_us(timer, samples, samples, 0);
}

// The faster of FlashAttention-3 and cuDNN on the same kind of GPU, TFLOP/s, S = 512 ... 16384; at 256 cuDNN alone.
constexpr double kBars[3][2][6] = {{{328, 420, 474, 502, 502, 524}, {193, 301, 416, 471, 510, 510}},
                                   {{354, 489, 524, 565, 597, 598}, {223, 359, 462, 526, 562, 593}},
                                   {{241, 304, 364, 405, 378, 360}, {180, 256, 323, 356, 383, 381}}};

/// What is said of the bar, where there is one.
std::string against_bar(int head_dim, int causal, std::int64_t seq, double tflops) {
  const int row = head_dim == 64 ? 0 : head_dim == 128 ? 1 : head_dim == 256 ? 2 : -1;
  if (row < 0) return "";
  int cell = 0;
  while (512 << cell < seq) ++cell;
  const double bar = kBars[row][causal][std::min(cell, 5)];
  char text[64];
  std::snprintf(text, sizeof text, ", %.2f of the bar %.0f", tflops / bar, bar);
  return text;
}

template <typename Shape>
void time_grid(const std::vector<std::int64_t>& lengths) {
  constexpr int D = Shape::kHeadDim, M = Shape::kTileM;
  constexpr bool kOrdered = Shape::kOrdered;
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int causal = 0; causal < 2; ++causal) {
    for (const std::int64_t seq : lengths) {
      const Problem p{16384 / seq, 2048 / D, 2048 / D, seq, seq, D, Dtype::kBf16, causal != 0, -1, default_scale(D)};
      Case c(p);
      fill_normal(c.q, nullptr, dense_elements(c.queries), c.queries, 1);
      fill_normal(c.o, nullptr, dense_elements(c.queries), c.queries, 2);
      fill_normal(c.dout, nullptr, dense_elements(c.queries), c.queries, 3);
      fill_normal(c.k, nullptr, dense_elements(c.keys), c.keys, 4);
      fill_normal(c.v, nullptr, dense_elements(c.keys), c.keys, 5);
      const std::int64_t rows = p.batch * p.heads * p.seq_q;
      fill_constant<<<blocks(rows), 256>>>(c.lse, rows, logf(static_cast<float>(seq)) + 0.5f);
      Launcher<Shape> launch(c);
      const double us = time_us(
          stream, [&] { launch(stream); }, 15);
      const double rows_us = time_us(
          stream, [&] { launch.prepare(stream); }, 7);
      const double main_us = time_us(
          stream,
          [&] {
            cudaMemsetAsync(c.counter, 0, 4, stream);
            cudaMemsetAsync(c.turns, 0, rows / M * 8, stream);
            launch.main(stream);
          },
          7);
      const double finish_us = time_us(
          stream, [&] { launch.finish(stream); }, 7);
      const double flops = 10.0 * p.batch * p.heads * seq * seq * D * (causal ? 0.5 : 1.0);
      const double tflops = flops / us * 1e-6;
      std::printf("D%d M%d o%d c%d S%lld: %.0f us, %.0f TFLOP/s%s | rows %.0f main %.0f (%.0f) convert %.0f\n", D, M,
                  kOrdered, causal, static_cast<long long>(seq), us, tflops,
                  against_bar(D, causal, seq, tflops).c_str(), rows_us, main_us, flops / main_us * 1e-6, finish_us);
    }
  }
}

/// Both shapes of a head dimension. BENCH_DIMS compiles some of them only, in a quarter of the time.
#ifndef BENCH_DIMS
#define BENCH_DIMS 64, 96, 128, 192, 256
#endif
template <int D, bool kOrdered>
using ShapeOf = std::conditional_t<(D > 128), hp::WideShape<D, kOrdered>,
                                   hp::BackwardShape<(D > 128 ? 128 : D), (D == 64 ? 128 : 64), kOrdered>>;

template <int... kDims>
void run(const std::string& word, const std::vector<std::int64_t>& numbers, std::integer_sequence<int, kDims...>) {
  const auto asked = [&](int dim) { return numbers.empty() || numbers[0] == 0 || numbers[0] == dim; };
  std::vector<std::int64_t> lengths(numbers.begin() + (numbers.empty() ? 0 : 1), numbers.end());
  if (word == "check") {
    ((asked(kDims) ? run_checks<ShapeOf<kDims, false>>() : void()), ...);
    ((asked(kDims) ? run_checks<ShapeOf<kDims, true>>() : void()), ...);
    std::printf("%d bad\n", failures);
  }
  if (word == "time") {
    if (lengths.empty()) lengths = {512, 1024, 2048, 4096, 8192, 16384};
    ((asked(kDims) ? time_grid<ShapeOf<kDims, false>>(lengths) : void()), ...);
  }
  if (word == "ordered") {
    if (lengths.empty()) lengths = {512, 2048, 8192};
    ((asked(kDims) ? time_grid<ShapeOf<kDims, true>>(lengths) : void()), ...);
  }
}

}  // namespace
}  // namespace attnbench::dev

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  attnbench::dev::run(argc > 1 ? argv[1] : "", attnbench::dev::numbers(argc, argv, 2),
                      std::integer_sequence<int, BENCH_DIMS>());
  return attnbench::dev::failures == 0 ? 0 : 1;
}
