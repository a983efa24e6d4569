// When a row has enough samples. Pure: what was measured so far in, the reason to stop (or none yet) out.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "bench/cli/options.hpp"

namespace attnbench::measure {

/// The words of the `stop_reason` column.
enum class StopReason {
  kNoise,        // the median is known well enough
  kSamples,      // samples_max were taken
  kTimeLimit,    // the row's time was used up; at least samples_min samples exist
  kOutOfReach,   // the rest of the row's time would not make the median known well enough
  kTimeout,      // the launches alone took kTimeoutFactor times the row's time before there were samples_min samples
  kInterrupted,  // the user asked to stop
  kError,        // a launch reported an error
};

constexpr std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::kNoise:
      return "noise";
    case StopReason::kSamples:
      return "samples";
    case StopReason::kTimeLimit:
      return "time_limit";
    case StopReason::kOutOfReach:
      return "out_of_reach";
    case StopReason::kTimeout:
      return "timeout";
    case StopReason::kInterrupted:
      return "interrupted";
    case StopReason::kError:
      return "error";
  }
  return "?";
}

/// A row whose launches are longer than the limit still gets its least number of samples, but not for ever: past this
/// many times the limit it is given up. Ten limits of three seconds let a launch of ten seconds through. Launches alone
/// count: a flush of a large cache is no fault of the kernel.
inline constexpr double kTimeoutFactor = 10;

/// A row is never given up as out of reach before this share of its time limit.
inline constexpr double kOutOfReachShare = 1.0 / 3;

/// How far the half width of the interval may prove to have been overestimated: the projection starts from a third of
/// what was seen. With few samples the width itself is a rough guess, and a disturbance that ends lets it shrink faster
/// than the square root. Replayed on the 54 recorded rows of a noisy two-core machine, a third gives up two of the 15
/// rows that reached the bound in the end and saves a sixth of the time; a half gives up five and saves a third.
inline constexpr double kOutOfReachWidthShare = 1.0 / 3;

/// What one row has spent so far.
struct Progress {
  std::span<const double> times_us;  // every sample, in order
  double wall_s = 0;                 // with everything around them: cache flush, timer, synchronisation
};

/// Samples that must exist at the time limit for the half width to come down from `half_width` (of `count` samples) to
/// `wanted`, both relative to the median: an interval shrinks as 1 / sqrt(n), so count * (half_width / wanted)^2.
double projected_samples(double count, double half_width, double wanted);

/// In this order: samples_max; the noise rule, once samples_min samples exist and time_min_s have passed (the half
/// width of the median's 95 % interval is at most noise_max_pct of the median, which needs six samples); the time limit
/// with at least samples_min samples, which is also met as soon as six samples will not fit into it: no interval comes
/// of it then, and the time is better spent on other rows; out of reach; the timeout.
///
/// Out of reach: time_min_s and a third of the time limit have passed, and even if the half width were a third of what
/// it is seen to be, more samples would be needed (projected_samples) than fit into the time limit at the pace so far.
/// Below 11 samples the interval ends in the smallest and the largest of them, so one disturbed sample makes it as wide
/// as it likes and nothing is projected from it; but where 11 will not fit, it can only widen, and is out of reach.
///
/// The least time is there to see the machine's slower moods, so it counts wall time, cache flushes included. The noise
/// rule looks at its own data while deciding to go on, so the interval's 95 % is nominal.
std::optional<StopReason> should_stop(const Progress& progress, const cli::Sampling& sampling);

}  // namespace attnbench::measure
