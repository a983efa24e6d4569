// Rank statistics against counts by hand and against SciPy 1.x (scipy.stats.mannwhitneyu).
#include "bench/base/two_samples.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace attnbench::base {
namespace {

using Values = std::vector<double>;

TEST(MannWhitney, IsExactForFewValuesWithoutTies) {
  const auto apart = mann_whitney(Values{1, 2, 3}, Values{4, 5, 6});
  ASSERT_TRUE(apart);
  EXPECT_TRUE(apart->exact);
  EXPECT_EQ(apart->u, 9);
  EXPECT_NEAR(apart->p, 0.1, 1e-15);  // 2 of the 20 orders
  const auto five = mann_whitney(Values{1, 2, 3, 4, 5}, Values{6, 7, 8, 9, 10});
  EXPECT_NEAR(five->p, 2.0 / 252, 1e-15);
  const auto mixed = mann_whitney(Values{1.1, 2.2, 3.3, 4.4, 5.5, 6.6, 7.7}, Values{3, 4, 5, 6, 7, 8, 9, 10});
  EXPECT_EQ(mixed->u, 41);
  EXPECT_NEAR(mixed->p, 0.151981351981352, 1e-14);
}

TEST(MannWhitney, CorrectsForTiesAndContinuity) {
  const auto test = mann_whitney(Values{1, 2, 2, 3, 5, 8}, Values{2, 3, 3, 4, 9, 10, 11});
  ASSERT_TRUE(test);
  EXPECT_FALSE(test->exact);
  EXPECT_EQ(test->u, 31);
  EXPECT_NEAR(test->p, 0.16996790760227598, 1e-12);
}

TEST(MannWhitney, TakesTheNormalLimitForMany) {
  Values a(25), b(25);
  std::iota(a.begin(), a.end(), 0.0);
  for (std::size_t i = 0; i < 25; ++i) b[i] = a[i] + 6.5;
  const auto test = mann_whitney(a, b);
  EXPECT_EQ(test->u, 454);
  EXPECT_NEAR(test->p, 0.006222848471189992, 1e-12);
}

TEST(MannWhitney, OfEqualValuesSaysNothing) {
  EXPECT_EQ(mann_whitney(Values{2, 2, 2}, Values{2, 2})->p, 1);
  EXPECT_EQ(mann_whitney(Values{1}, Values{2})->p, 1);
}

TEST(MannWhitney, IsAbsentWithoutValuesAndWithNaN) {
  EXPECT_FALSE(mann_whitney(Values{}, Values{1}));
  EXPECT_FALSE(mann_whitney(Values{1, std::nan("")}, Values{1}));
  EXPECT_FALSE(mann_whitney(Values{1}, Values{std::numeric_limits<double>::infinity()}));
}

TEST(HodgesLehmann, IsTheMedianOfAllDifferences) {
  const auto shift = hodges_lehmann(Values{1, 4, 6, 7}, Values{3, 8, 9, 12, 13}, 0.05);
  ASSERT_TRUE(shift);
  EXPECT_DOUBLE_EQ(shift->estimate, 5);
  // P(U <= 1) = 0.0159 and P(U <= 2) = 0.0317: one difference is left out on each side.
  ASSERT_TRUE(shift->interval);
  EXPECT_DOUBLE_EQ(shift->interval->low, -3);
  EXPECT_DOUBLE_EQ(shift->interval->high, 11);
}

TEST(HodgesLehmann, HasNoIntervalWhereNoOrderIsRareEnough) {
  const auto shift = hodges_lehmann(Values{1, 2, 3}, Values{4, 5, 6}, 0.05);
  ASSERT_TRUE(shift);
  EXPECT_DOUBLE_EQ(shift->estimate, 3);
  EXPECT_FALSE(shift->interval);
}

TEST(HodgesLehmann, AgreesWithSortingEveryDifference) {
  std::mt19937_64 engine(5);
  std::normal_distribution<double> normal;
  for (const std::size_t n : {1u, 2u, 7u, 21u, 40u}) {
    for (const std::size_t m : {1u, 3u, 22u, 57u}) {
      Values a(n), b(m), all;
      for (double& value : a) value = normal(engine);
      for (double& value : b) value = normal(engine) + 0.3;
      for (const double x : a) {
        for (const double y : b) all.push_back(y - x);
      }
      EXPECT_NEAR(hodges_lehmann(a, b, 0.05)->estimate, *median(all), 1e-12) << n << " and " << m;
    }
  }
}

TEST(HodgesLehmann, CoversAKnownShiftAsOftenAsItSays) {
  std::mt19937_64 engine(6);
  std::normal_distribution<double> normal;
  int covered = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    Values a(30), b(25);
    for (double& value : a) value = normal(engine);
    for (double& value : b) value = normal(engine) + 1;
    const auto interval = hodges_lehmann(a, b, 0.05)->interval;
    ASSERT_TRUE(interval);
    covered += interval->low <= 1 && 1 <= interval->high ? 1 : 0;
  }
  EXPECT_GE(covered, 925);  // 950 expected, standard deviation 7
  EXPECT_LE(covered, 975);
}

TEST(Holm, StepsDownAndNeverFalls) {
  const Values corrected = holm(Values{0.01, 0.04, 0.03, 0.005});
  EXPECT_NEAR(corrected[0], 0.03, 1e-15);
  EXPECT_NEAR(corrected[1], 0.06, 1e-15);
  EXPECT_NEAR(corrected[2], 0.06, 1e-15);
  EXPECT_NEAR(corrected[3], 0.02, 1e-15);
  EXPECT_TRUE(holm(Values{}).empty());
  EXPECT_EQ(holm(Values{0.9, 0.8})[0], 1);
}

TEST(Thinned, LeavesIndependentSamplesAlone) {
  std::mt19937_64 engine(7);
  std::normal_distribution<double> normal;
  Values values(200);
  for (double& value : values) value = normal(engine);
  EXPECT_LT(std::fabs(*neighbour_correlation(values)), 0.2);
  EXPECT_GE(thinned(values).size(), 100u);
  EXPECT_EQ(thinned(Values{1, 2, 3}), (Values{1, 2, 3}));
}

TEST(Thinned, MakesAWanderingSampleSmall) {
  std::mt19937_64 engine(8);
  std::normal_distribution<double> normal;
  Values values(400);
  double state = 0;
  for (double& value : values) value = state = 0.9 * state + normal(engine);
  const Values few = thinned(values);
  EXPECT_GT(*neighbour_correlation(values), 0.8);
  EXPECT_LT(few.size(), 45u);  // (1 + 0.9) / (1 - 0.9) = 19 to a block
  EXPECT_LT(neighbour_correlation(few).value_or(0), 0.5);
}

}  // namespace
}  // namespace attnbench::base
