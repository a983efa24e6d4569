// Statistics of a sample of times. Pure functions on a span; nothing is assumed of the distribution.
//
// Absent is absent: a statistic that the sample cannot support is an empty optional. A NaN in the sample makes every
// statistic of it absent, since a time that is not a number cannot be ranked or averaged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace attnbench::base {

/// A closed interval.
struct Interval {
  double low = 0;
  double high = 0;
};

/// 1-based ranks of the order statistics that bound the median.
struct Ranks {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

/// Tukey's classes: mild lies beyond 1.5 interquartile ranges from the quartiles, severe beyond 3. Counted, never
/// removed. A value is in one class only.
struct Outliers {
  std::int64_t mild = 0;
  std::int64_t severe = 0;
};

/// Everything that a row reports of a sample.
struct Summary {
  std::int64_t count = 0;
  std::optional<double> median, mean, stdev, min, max, q1, q3, p95, p99;
  std::optional<Interval> median_ci;
  std::optional<double> spread_pct;
  std::optional<Outliers> outliers;
};

/// Middle value, or the mean of the two middle ones. Needs n >= 1.
std::optional<double> median(std::span<const double> values);

/// Below this the extremes of the sample cover the median with less than 95 %: 1 - 2 / 2^5 = 93.75 %.
inline constexpr std::int64_t kLeastForInterval = 6;

/// Ranks floor(n/2 - 0.98 sqrt n) and ceil(n/2 + 1 + 0.98 sqrt n), kept inside [1, n]: the normal approximation of the
/// binomial that counts the values below the median. Needs n >= 6, the least n whose extremes cover 95 %.
std::optional<Ranks> median_ci_ranks(std::int64_t count);

/// 95 % confidence interval of the median from order statistics, free of any assumption on the distribution. Nominal:
/// the samples of a run are correlated in time, and the sampler looks at the interval while it decides to go on.
std::optional<Interval> median_interval(std::span<const double> values);

/// Half the width of median_interval over the median. Needs n >= 6 and a positive median.
std::optional<double> relative_half_width(std::span<const double> values);

/// Welford's running mean. Needs n >= 1.
std::optional<double> mean(std::span<const double> values);

/// Square root of the unbiased variance (Welford). Needs n >= 2.
std::optional<double> stdev(std::span<const double> values);

/// Quantile by linear interpolation between the order statistics around (n - 1) p (Hyndman and Fan's type 7).
/// Needs n >= 1 and p in [0, 1].
std::optional<double> quantile(std::span<const double> values, double p);

/// The 95th percentile needs n >= 20, the 99th n >= 100: below that it would be the maximum under another name. In
/// general n (1 - p) >= 1 is asked for.
std::optional<double> percentile(std::span<const double> values, double percent);

/// Needs n >= 4.
std::optional<Outliers> outliers(std::span<const double> values);

/// Interquartile range over the median, in percent. Needs n >= 2 and a positive median.
std::optional<double> spread_pct(std::span<const double> values);

/// All of the above with one sort.
Summary summarize(std::span<const double> values);

}  // namespace attnbench::base
