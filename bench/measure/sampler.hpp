// Takes samples of several launches in turn until each has enough.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/cli/options.hpp"
#include "bench/measure/stopping.hpp"
#include "kernels/device/device.hpp"

namespace attnbench::measure {

/// Everything one stopwatch gave, in the order it was taken. Nothing is ever removed.
struct Series {
  std::vector<double> times_us;
  std::vector<double> clocks_mhz;  // of the samples that have one
  std::optional<int> throttled;    // samples during which the device was held back, where it can tell
  double wall_s = 0;               // spent on it; where times are declared (mock), their sum
  StopReason stop = StopReason::kInterrupted;
  std::optional<base::Error> error;  // with kError
};

/// The world outside, so that tests can script it.
struct Surroundings {
  std::function<double()> now_s;      // a steady clock
  std::function<bool()> interrupted;  // asked before every sample
};

/// A steady clock, and `interrupted` as given.
Surroundings surroundings(std::function<bool()> interrupted);

/// One sample of each stopwatch after the other, round after round (ABCABC), so that a drift of the machine meets all
/// alike; a stopwatch leaves the round when should_stop says so for it alone. A stopwatch that reports an error leaves
/// with kError, the others go on. An interrupt ends all that are still in the round.
///
/// Memory  room for samples_max samples (at most kReserve at once) is reserved before the first sample
/// Errors  a time that is not a positive number is an error of that stopwatch
std::vector<Series> take_samples(std::span<kernels::Stopwatch* const> stopwatches, const cli::Sampling& sampling,
                                 const Surroundings& world);

/// Samples taken and thrown away until `seconds` of wall time (or of declared time) have passed, at least one: fills
/// caches, wakes clocks.
base::Result<void> warm_up(kernels::Stopwatch& stopwatch, double seconds, const Surroundings& world);

}  // namespace attnbench::measure
