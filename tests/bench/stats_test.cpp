// Statistics on samples small enough to work out by hand, and on those that a statistic must refuse.
#include "bench/base/stats.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace attnbench::base {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> counting(int n) {
  std::vector<double> values;
  for (int i = 1; i <= n; ++i) values.push_back(i);
  return values;
}

TEST(Stats, AnEmptySampleHasNoStatistic) {
  const Summary summary = summarize({});
  EXPECT_EQ(summary.count, 0);
  EXPECT_FALSE(summary.median || summary.mean || summary.stdev || summary.min || summary.max || summary.q1 ||
               summary.q3 || summary.p95 || summary.p99 || summary.spread_pct);
  EXPECT_FALSE(summary.median_ci.has_value());
  EXPECT_FALSE(summary.outliers.has_value());
}

TEST(Stats, OneValueIsItsOwnMedianAndHasNoSpread) {
  const Summary summary = summarize(std::vector<double>{7});
  EXPECT_EQ(summary.median, 7);
  EXPECT_EQ(summary.mean, 7);
  EXPECT_EQ(summary.q1, 7);
  EXPECT_EQ(summary.max, 7);
  EXPECT_FALSE(summary.stdev.has_value());
  EXPECT_FALSE(summary.spread_pct.has_value());
}

TEST(Stats, TwoValuesHaveTheMedianBetweenThem) {
  const std::vector<double> values{4, 2};
  EXPECT_EQ(median(values), 3);
  EXPECT_DOUBLE_EQ(*stdev(values), std::sqrt(2.0));
  EXPECT_EQ(quantile(values, 0.25), 2.5);
  EXPECT_FALSE(median_interval(values).has_value());
}

TEST(Stats, AConstantSampleHasNoSpreadAndNoOutlier) {
  const Summary summary = summarize(std::vector<double>(50, 3.5));
  EXPECT_EQ(summary.median, 3.5);
  EXPECT_EQ(summary.stdev, 0);
  EXPECT_EQ(summary.spread_pct, 0);
  EXPECT_EQ(summary.median_ci->low, 3.5);
  EXPECT_EQ(summary.median_ci->high, 3.5);
  EXPECT_EQ(summary.outliers->mild + summary.outliers->severe, 0);
  EXPECT_EQ(relative_half_width(std::vector<double>(50, 3.5)), 0);
}

TEST(Stats, ANanMakesEveryStatisticAbsent) {
  std::vector<double> values = counting(200);
  values[17] = kNan;
  const Summary summary = summarize(values);
  EXPECT_EQ(summary.count, 200);
  EXPECT_FALSE(summary.median || summary.mean || summary.stdev || summary.min || summary.p99 || summary.spread_pct);
  EXPECT_FALSE(median(values) || mean(values) || stdev(values) || percentile(values, 95));
  EXPECT_FALSE(relative_half_width(values).has_value());
}

TEST(Stats, QuartilesInterpolateBetweenOrderStatistics) {
  EXPECT_DOUBLE_EQ(*quantile(counting(4), 0.25), 1.75);
  EXPECT_DOUBLE_EQ(*quantile(counting(5), 0.75), 4.0);
  EXPECT_FALSE(quantile(counting(5), 1.5).has_value());
  EXPECT_EQ(quantile(counting(5), 1.0), 5.0);
}

TEST(Stats, APercentileNeedsASampleThatSupportsIt) {
  EXPECT_FALSE(percentile(counting(19), 95).has_value());
  EXPECT_TRUE(percentile(counting(20), 95).has_value());
  EXPECT_FALSE(percentile(counting(99), 99).has_value());
  EXPECT_TRUE(percentile(counting(100), 99).has_value());
  EXPECT_LT(*percentile(counting(20), 95), 20);
}

TEST(Stats, TheIntervalOfTheMedianNeedsSixSamples) {
  EXPECT_FALSE(median_ci_ranks(5).has_value());
  const auto six = median_ci_ranks(6);
  EXPECT_EQ(six->low, 1);
  EXPECT_EQ(six->high, 6);
  const auto hundred = median_ci_ranks(100);  // 50 - 9.8 and 51 + 9.8
  EXPECT_EQ(hundred->low, 40);
  EXPECT_EQ(hundred->high, 61);
}

/// P(low <= number of values under the median < high) for a fair coin, in logs so that large n do not underflow.
double coverage(std::int64_t n, const Ranks& ranks) {
  double covered = 0;
  for (std::int64_t k = ranks.low; k < ranks.high; ++k) {
    const double nn = static_cast<double>(n);
    const double kk = static_cast<double>(k);
    covered += std::exp(std::lgamma(nn + 1) - std::lgamma(kk + 1) - std::lgamma(nn - kk + 1) - nn * std::log(2.0));
  }
  return covered;
}

TEST(Stats, TheRanksCoverTheMedianWithNinetyFivePercentAtEverySize) {
  for (std::int64_t n = 6; n <= 1000; ++n) EXPECT_GE(coverage(n, *median_ci_ranks(n)), 0.95) << n;
}

TEST(Stats, OutliersAreCountedByTukeysFences) {
  EXPECT_EQ(outliers(counting(11))->mild + outliers(counting(11))->severe, 0);
  // Quartiles of 1 ... 11, 25 and 500 are 4 and 10: mild is past 19, severe past 28.
  std::vector<double> values = counting(11);
  values.push_back(25);
  values.push_back(500);
  EXPECT_EQ(outliers(values)->mild, 1);
  EXPECT_EQ(outliers(values)->severe, 1);
  EXPECT_FALSE(outliers(counting(3)).has_value());
}

TEST(Stats, TheOrderOfTheSampleDoesNotMatter) {
  std::vector<double> values = counting(101);
  const Summary ordered = summarize(values);
  std::shuffle(values.begin(), values.end(), std::mt19937(7));
  const Summary shuffled = summarize(values);
  EXPECT_EQ(ordered.median, shuffled.median);
  EXPECT_EQ(ordered.p99, shuffled.p99);
  EXPECT_EQ(ordered.mean, shuffled.mean);
}

TEST(Stats, TheMeanOfLargeNearlyEqualValuesKeepsItsDigits) {
  const std::vector<double> values{1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16};
  EXPECT_DOUBLE_EQ(*mean(values), 1e9 + 10);
  EXPECT_DOUBLE_EQ(*stdev(values), std::sqrt(30.0));
}

TEST(Stats, ARatioToAMedianThatIsNotPositiveIsAbsent) {
  EXPECT_FALSE(spread_pct(std::vector<double>{-1, 0, 1}).has_value());
  EXPECT_FALSE(relative_half_width(std::vector<double>(10, 0.0)).has_value());
}

}  // namespace
}  // namespace attnbench::base
