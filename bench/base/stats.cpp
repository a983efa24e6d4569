// Order statistics by one sort; moments by Welford.
#include "bench/base/stats.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace attnbench::base {
namespace {

/// Empty when a value is NaN, so that every statistic of the sample is absent.
std::vector<double> sorted(std::span<const double> values) {
  if (std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); })) return {};
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

std::int64_t count_of(std::span<const double> values) { return static_cast<std::int64_t>(values.size()); }

std::optional<double> quantile_of_sorted(std::span<const double> ordered, double p) {
  if (ordered.empty() || !(p >= 0 && p <= 1)) return std::nullopt;
  const double position = static_cast<double>(ordered.size() - 1) * p;
  const auto below = static_cast<std::size_t>(position);
  const double fraction = position - static_cast<double>(below);
  if (fraction == 0) return ordered[below];
  return ordered[below] + fraction * (ordered[below + 1] - ordered[below]);
}

std::optional<double> percentile_of_sorted(std::span<const double> ordered, double percent) {
  // The small slack keeps n = 20 at 95 % in, whatever the rounding of the product.
  if (static_cast<double>(ordered.size()) * (100 - percent) < 100 - 1e-9) return std::nullopt;
  return quantile_of_sorted(ordered, percent / 100);
}

std::optional<Interval> interval_of_sorted(std::span<const double> ordered) {
  const auto ranks = median_ci_ranks(count_of(ordered));
  if (!ranks) return std::nullopt;
  return Interval{ordered[static_cast<std::size_t>(ranks->low - 1)],
                  ordered[static_cast<std::size_t>(ranks->high - 1)]};
}

std::optional<Outliers> outliers_of_sorted(std::span<const double> ordered) {
  if (ordered.size() < 4) return std::nullopt;
  const double q1 = *quantile_of_sorted(ordered, 0.25);
  const double q3 = *quantile_of_sorted(ordered, 0.75);
  Outliers result;
  for (const double value : ordered) {
    const double beyond = std::max(q1 - value, value - q3);
    if (beyond > 3 * (q3 - q1)) {
      ++result.severe;
    } else if (beyond > 1.5 * (q3 - q1)) {
      ++result.mild;
    }
  }
  return result;
}

std::optional<double> spread_of_sorted(std::span<const double> ordered) {
  if (ordered.size() < 2) return std::nullopt;
  const double middle = *quantile_of_sorted(ordered, 0.5);
  if (!(middle > 0)) return std::nullopt;
  return 100 * (*quantile_of_sorted(ordered, 0.75) - *quantile_of_sorted(ordered, 0.25)) / middle;
}

struct Moments {
  double mean = 0;
  double squares = 0;  // sum of squared deviations from the mean
};

Moments moments(std::span<const double> values) {
  Moments result;
  double count = 0;
  for (const double value : values) {
    count += 1;
    const double before = value - result.mean;
    result.mean += before / count;
    result.squares += before * (value - result.mean);
  }
  return result;
}

}  // namespace

std::optional<double> median(std::span<const double> values) { return quantile_of_sorted(sorted(values), 0.5); }

std::optional<Ranks> median_ci_ranks(std::int64_t count) {
  if (count < kLeastForInterval) return std::nullopt;
  const double n = static_cast<double>(count);
  const double reach = 0.98 * std::sqrt(n);  // 1.96 / 2 standard deviations of a binomial with p = 1/2
  const auto low = static_cast<std::int64_t>(std::floor(n / 2 - reach));
  const auto high = static_cast<std::int64_t>(std::ceil(n / 2 + 1 + reach));
  return Ranks{std::max<std::int64_t>(1, low), std::min(count, high)};
}

std::optional<Interval> median_interval(std::span<const double> values) { return interval_of_sorted(sorted(values)); }

std::optional<double> relative_half_width(std::span<const double> values) {
  const std::vector<double> ordered = sorted(values);
  const auto interval = interval_of_sorted(ordered);
  const auto middle = quantile_of_sorted(ordered, 0.5);
  if (!interval || !(*middle > 0)) return std::nullopt;
  return (interval->high - interval->low) / 2 / *middle;
}

std::optional<double> mean(std::span<const double> values) {
  const Moments result = moments(values);
  if (values.empty() || std::isnan(result.mean)) return std::nullopt;
  return result.mean;
}

std::optional<double> stdev(std::span<const double> values) {
  const Moments result = moments(values);
  if (values.size() < 2 || std::isnan(result.squares)) return std::nullopt;
  return std::sqrt(result.squares / static_cast<double>(values.size() - 1));
}

std::optional<double> quantile(std::span<const double> values, double p) {
  return quantile_of_sorted(sorted(values), p);
}

std::optional<double> percentile(std::span<const double> values, double percent) {
  return percentile_of_sorted(sorted(values), percent);
}

std::optional<Outliers> outliers(std::span<const double> values) { return outliers_of_sorted(sorted(values)); }

std::optional<double> spread_pct(std::span<const double> values) { return spread_of_sorted(sorted(values)); }

Summary summarize(std::span<const double> values) {
  const std::vector<double> ordered = sorted(values);
  Summary result;
  result.count = count_of(values);
  if (ordered.empty()) return result;
  result.median = quantile_of_sorted(ordered, 0.5);
  result.median_ci = interval_of_sorted(ordered);
  result.mean = mean(ordered);
  result.stdev = stdev(ordered);
  result.min = ordered.front();
  result.max = ordered.back();
  result.q1 = quantile_of_sorted(ordered, 0.25);
  result.q3 = quantile_of_sorted(ordered, 0.75);
  result.p95 = percentile_of_sorted(ordered, 95);
  result.p99 = percentile_of_sorted(ordered, 99);
  result.spread_pct = spread_of_sorted(ordered);
  result.outliers = outliers_of_sorted(ordered);
  return result;
}

}  // namespace attnbench::base
