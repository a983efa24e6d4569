// Two samples against each other: is one shifted, and by how much. Pure functions on spans; ranks only, so nothing is
// assumed of the distributions beyond their being alike in shape.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "bench/base/stats.hpp"

namespace attnbench::base {

/// Result of a rank-sum test.
struct RankTest {
  double u = 0;        // pairs in which the value of b is the larger, ties half
  double p = 1;        // two-sided
  bool exact = false;  // p from the distribution of U itself, not from its normal limit
};

/// Mann and Whitney's U of b over a. Exact by counting where there are no ties and at most 20 values on each side, else
/// the normal limit with the correction for ties and for continuity. Needs one value on each side and no NaN.
std::optional<RankTest> mann_whitney(std::span<const double> a, std::span<const double> b);

/// Estimate and interval of the shift from a to b.
struct Shift {
  double estimate = 0;               // median of all differences b - a (Hodges and Lehmann 1963)
  std::optional<Interval> interval;  // at 1 - alpha; absent where the samples are too small for it
};

/// Needs one value on each side, all finite, and alpha in (0, 1). No n * m memory: differences are counted, not kept.
std::optional<Shift> hodges_lehmann(std::span<const double> a, std::span<const double> b, double alpha);

/// Holm's step-down correction: p values that may each be held against alpha while the chance of any false alarm among
/// them stays under alpha. Same order as given.
std::vector<double> holm(std::span<const double> p);

/// Correlation of neighbours in the order taken, in [-1, 1]. Needs n >= 8 and a spread above 0.
std::optional<double> neighbour_correlation(std::span<const double> values);

/// Means of blocks of neighbours so long that the blocks hardly depend on each other: each block is
/// (1 + r) / (1 - r) values long, r being the correlation of neighbours. The values themselves where r <= 0.1 or n < 8.
std::vector<double> thinned(std::span<const double> values);

}  // namespace attnbench::base
