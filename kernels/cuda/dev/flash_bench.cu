// Developer's tool: checks every tile variant of the flash kernel against double precision and times it.
//
//   attnbench_flash_bench check     correctness over shapes, masks, strides, dtypes and variants
//   attnbench_flash_bench nan       which rows a NaN in one row of an input reaches
//   attnbench_flash_bench small     the reference grid: batch 8, one head, causal; graph replay, hot
//   attnbench_flash_bench large     batch * length = 16384, heads * head_dim = 2048; graph replay, cold
//
// Build: cmake --build build --target attnbench_flash_bench (kernel set sm90 or full for every width).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/dev/flash_point.cuh"
#include "kernels/cuda/flash_config.cuh"

namespace attnbench::dev {

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
    const double errors[] = {error_of(point.o, truth.o), error_of(lse, truth.lse), error_of(point.dq, truth.dq),
                             error_of(point.dk, truth.dk), error_of(point.dv, truth.dv)};
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

/// Median time of one launch, us.
double time_us(BenchDevice& device, const std::function<void()>& launch, bool cold, double budget_ms) {
  Timer timer(device.cuda_stream(), cold, launch);
  return median_us(timer, 5, 30, budget_ms);
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
  std::printf("small grid, hot graph, us: fwd v0 v1 v2 v3/unfolded [bar] | bwd v0 v1 det [bar] | bar/best\n");
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
      if (v > 2) {
        auto plain = point.prepare(v, 0, false);
        std::printf("/%.2f", time_us(
                                 device, [&] { (void)plain->launch(Pass::kFwd); }, false, 60));
      }
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
