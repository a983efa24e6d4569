// Counts the fused multiply-adds that the cores do in a second: independent chains of them in registers.
#include "kernels/lab/cpu/fma_peak.hpp"

#include "kernels/cpu/flash_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lab/cpu/fma_peak.cpp"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attnbench::kernels::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Two fused units of latency 4 to 5 need 8 to 10 chains in flight; 12 fit 16 registers beside the two factors.
constexpr std::size_t kChains = 12;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

template <std::size_t... I>
HWY_INLINE void step(std::index_sequence<I...>, V* HWY_RESTRICT sum, V factor, V term) {
  ((sum[I] = hn::MulAdd(sum[I], factor, term)), ...);
}

template <std::size_t... I>
HWY_INLINE V total(std::index_sequence<I...>, const V* HWY_RESTRICT sum) {
  V all = hn::Zero(D());
  ((all = hn::Add(all, sum[I])), ...);
  return all;
}

}  // namespace

// x <- x * factor + term converges to term / (1 - factor): no overflow, no subnormals, nothing to fold at compile time.
float chains(std::int64_t steps, float seed) {
  constexpr auto kAll = std::make_index_sequence<kChains>();
  const V factor = hn::Set(D(), seed * 0.75f);
  const V term = hn::Set(D(), seed * 0.25f);
  V sum[kChains];
  for (std::size_t i = 0; i < kChains; ++i) sum[i] = hn::Set(D(), seed + static_cast<float>(i));
  for (std::int64_t i = 0; i < steps; ++i) step(kAll, sum, factor, term);
  return hn::GetLane(hn::SumOfLanes(D(), total(kAll, sum)));
}

double flops_of_step() { return 2.0 * static_cast<double>(kChains * hn::Lanes(D())); }

const char* isa_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnbench::kernels {
namespace {

HWY_EXPORT(chains);
HWY_EXPORT(flops_of_step);
HWY_EXPORT(isa_name);

// About 3 ms on one thread at 4 GHz (6 cycles a step): long beside waking the pool, short enough for many windows.
constexpr std::int64_t kSteps = 2'000'000;
constexpr int kLeastWindows = 5;

struct Window {
  const float* seed;
  std::vector<float>* results;
};

double gflops_of_window(ThreadPool& pool, const Window& window) {
  const auto body = [&window](std::int64_t item, int) {
    (*window.results)[static_cast<std::size_t>(item)] += HWY_DYNAMIC_DISPATCH(chains)(kSteps, *window.seed);
  };
  const auto start = std::chrono::steady_clock::now();
  pool.parallel_for(pool.threads(), body);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return HWY_DYNAMIC_DISPATCH(flops_of_step)() * kSteps * pool.threads() / time.count() * 1e-9;
}

}  // namespace

FmaPeak measure_fma_peak(ThreadPool& pool, double seconds) {
  std::vector<float> results(static_cast<std::size_t>(pool.threads()), 0.0f);
  volatile float opaque = 1.0f;  // keeps the factors unknown to the compiler
  const float seed = opaque;
  const Window window{&seed, &results};
  gflops_of_window(pool, window);  // clocks and threads warm up
  std::vector<double> rates;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  while (static_cast<int>(rates.size()) < kLeastWindows || elapsed() < seconds) {
    rates.push_back(gflops_of_window(pool, window));
  }
  for (const float result : results) opaque = result;
  std::sort(rates.begin(), rates.end());
  const std::size_t middle = rates.size() / 2;
  const double median = rates.size() % 2 == 1 ? rates[middle] : (rates[middle - 1] + rates[middle]) / 2;
  return {median, HWY_DYNAMIC_DISPATCH(isa_name)()};
}

}  // namespace attnbench::kernels
#endif
