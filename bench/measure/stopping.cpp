// The rules in the order of the header.
#include "bench/measure/stopping.hpp"

#include <algorithm>
#include <cstdint>

#include "bench/base/stats.hpp"

namespace attnbench::measure {
namespace {

/// Sorting after every sample would cost more than a short launch, so the noise rule is looked at after each of the
/// first 64 samples and then each time the sample has grown by a sixteenth.
bool worth_a_look(std::int64_t count) {
  if (count <= 64) return true;
  std::int64_t step = 4;
  while (step * 32 <= count) step *= 2;
  return count % step == 0;
}

/// So few samples that the interval reaches from the smallest to the largest of them.
bool spans_the_sample(std::int64_t count) {
  const auto ranks = base::median_ci_ranks(count);
  return !ranks || ranks->low <= 1;
}

/// The noise rule has just been asked: `half_width` is more than the bound.
bool out_of_reach(const Progress& progress, double half_width, const cli::Sampling& sampling) {
  if (progress.wall_s < kOutOfReachShare * sampling.time_limit_s) return false;
  const auto count = static_cast<double>(progress.times_us.size());
  const double fit = count / progress.wall_s * sampling.time_limit_s;
  if (spans_the_sample(static_cast<std::int64_t>(progress.times_us.size()))) {
    return spans_the_sample(static_cast<std::int64_t>(fit));
  }
  return projected_samples(count, kOutOfReachWidthShare * half_width, sampling.noise_max_pct / 100) > fit;
}

}  // namespace

double projected_samples(double count, double half_width, double wanted) {
  return count * (half_width / wanted) * (half_width / wanted);
}

std::optional<StopReason> should_stop(const Progress& progress, const cli::Sampling& sampling) {
  const auto count = static_cast<std::int64_t>(progress.times_us.size());
  const std::int64_t least = std::max(1, std::min(sampling.samples_min, sampling.samples_max));
  if (count < least) {
    double launches_us = 0;
    for (const double time_us : progress.times_us) launches_us += time_us;
    if (launches_us * 1e-6 > kTimeoutFactor * sampling.time_limit_s) return StopReason::kTimeout;
    return std::nullopt;
  }
  if (count >= sampling.samples_max) return StopReason::kSamples;
  std::optional<double> half_width;
  if (progress.wall_s >= sampling.time_min_s && worth_a_look(count)) {
    half_width = base::relative_half_width(progress.times_us);
    if (half_width && *half_width * 100 <= sampling.noise_max_pct) return StopReason::kNoise;
  }
  if (progress.wall_s >= sampling.time_limit_s) return StopReason::kTimeLimit;
  if (half_width && out_of_reach(progress, *half_width, sampling)) return StopReason::kOutOfReach;
  const double per_sample_s = progress.wall_s / static_cast<double>(count);
  if (count < base::kLeastForInterval && per_sample_s * base::kLeastForInterval > sampling.time_limit_s) {
    return StopReason::kTimeLimit;
  }
  return std::nullopt;
}

}  // namespace attnbench::measure
