// The round of samples.
#include "bench/measure/sampler.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

namespace attnbench::measure {
namespace {

/// Reserved per series; growing beyond happens between samples, never inside the clock.
constexpr int kReserve = 1 << 16;

/// One sample into the series; false when the stopwatch is done for.
bool take_one(kernels::Stopwatch& stopwatch, Series& series, const Surroundings& world) {
  const double begin = world.now_s();
  auto sample = stopwatch.take();
  const bool declared = sample && stopwatch.info().timing == kernels::Timing::kDeclared;
  series.wall_s += declared ? sample->time_us * 1e-6 : world.now_s() - begin;
  if (sample && !(sample->time_us > 0 && std::isfinite(sample->time_us))) {
    sample = base::fail(base::ErrorKind::kFailed, "the stopwatch gave a time of " + std::to_string(sample->time_us) +
                                                      " us; a sample must be positive");
  }
  if (!sample) {
    series.error = sample.error();
    series.stop = StopReason::kError;
    return false;
  }
  series.times_us.push_back(sample->time_us);
  if (sample->clock_mhz) series.clocks_mhz.push_back(*sample->clock_mhz);
  if (sample->throttled) series.throttled = series.throttled.value_or(0) + (*sample->throttled ? 1 : 0);
  return true;
}

}  // namespace

Surroundings surroundings(std::function<bool()> interrupted) {
  return {[] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); },
          std::move(interrupted)};
}

std::vector<Series> take_samples(std::span<kernels::Stopwatch* const> stopwatches, const cli::Sampling& sampling,
                                 const Surroundings& world) {
  std::vector<Series> all(stopwatches.size());
  std::vector<std::size_t> round;
  for (std::size_t i = 0; i < stopwatches.size(); ++i) {
    const auto room = static_cast<std::size_t>(std::clamp(sampling.samples_max, 1, kReserve));
    all[i].times_us.reserve(room);
    all[i].clocks_mhz.reserve(room);
    round.push_back(i);
  }
  while (!round.empty()) {
    for (auto lane = round.begin(); lane != round.end();) {
      if (world.interrupted()) return all;  // the default reason of those still here
      Series& series = all[*lane];
      bool more = take_one(*stopwatches[*lane], series, world);
      if (more) {
        if (const auto reason = should_stop({series.times_us, series.wall_s}, sampling)) {
          series.stop = *reason;
          more = false;
        }
      }
      lane = more ? lane + 1 : round.erase(lane);
    }
  }
  return all;
}

base::Result<void> warm_up(kernels::Stopwatch& stopwatch, double seconds, const Surroundings& world) {
  const double begin = world.now_s();
  const bool declared = stopwatch.info().timing == kernels::Timing::kDeclared;
  double declared_s = 0;
  do {
    if (world.interrupted()) return base::fail(base::ErrorKind::kInterrupted, "stopped by the user during the warm-up");
    auto sample = stopwatch.take();
    if (!sample) return tl::unexpected(sample.error());
    if (declared) declared_s += sample->time_us * 1e-6;
  } while (std::max(world.now_s() - begin, declared_s) < seconds);
  return {};
}

}  // namespace attnbench::measure
