// Rank statistics of two samples; the normal distribution is Boost.Math's.
#include "bench/base/two_samples.hpp"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <numeric>

#include "bench/base/error.hpp"

namespace attnbench::base {
namespace {

constexpr std::size_t kMostForExact = 20;

bool usable(std::span<const double> values) {
  return !values.empty() && std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

std::vector<double> ordered(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

/// What the ranks of the two samples together say.
struct Ranking {
  double sum_b = 0;  // of the ranks of b, ties at their mean
  double ties = 0;   // sum of t^3 - t over groups of t equal values
};

Ranking rank(std::span<const double> a, std::span<const double> b) {
  std::vector<std::pair<double, bool>> all;
  all.reserve(a.size() + b.size());
  for (const double value : a) all.emplace_back(value, false);
  for (const double value : b) all.emplace_back(value, true);
  std::sort(all.begin(), all.end());
  Ranking result;
  for (std::size_t first = 0, last = 0; first < all.size(); first = last) {
    double of_b = 0;
    for (last = first; last < all.size() && all[last].first == all[first].first; ++last) of_b += all[last].second;
    const auto equal = static_cast<double>(last - first);
    const double mean_rank = static_cast<double>(first + last + 1) / 2;  // ranks count from 1
    result.sum_b += of_b * mean_rank;
    result.ties += equal * (equal * equal - 1);
  }
  return result;
}

/// counts[u]: in how many of the (n + m choose n) orders of n and m different values U is u. The recurrence of Mann and
/// Whitney as a product of Gaussian binomials: multiply by 1 - x^(m + i), divide by 1 - x^i.
std::vector<double> orders_by_u(std::size_t n, std::size_t m) {
  const std::size_t most = n * m;
  std::vector<double> counts(most + 1, 0.0);
  counts[0] = 1;
  for (std::size_t i = 1; i <= n; ++i) {
    for (std::size_t u = most + 1; u-- > m + i;) counts[u] -= counts[u - m - i];
    for (std::size_t u = i; u <= most; ++u) counts[u] += counts[u - i];
  }
  return counts;
}

/// P(U <= u) of n and m different values in random order.
double exact_lower_tail(std::size_t n, std::size_t m, double u) {
  const std::vector<double> counts = orders_by_u(n, m);
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  double below = 0;
  for (std::size_t i = 0; i < counts.size() && static_cast<double>(i) <= u; ++i) below += counts[i];
  return below / all;
}

double normal_two_sided(double n, double m, double ties, double distance) {
  const double all = n + m;
  const double variance = n * m / 12 * (all + 1 - ties / (all * (all - 1)));
  if (!(variance > 0)) return 1;  // every value the same
  const double z = std::max(0.0, distance - 0.5) / std::sqrt(variance);
  return std::min(1.0, 2 * cdf(complement(boost::math::normal(), z)));
}

/// Number of differences b - a that are at most `limit`. Both ordered.
std::int64_t differences_up_to(std::span<const double> a, std::span<const double> b, double limit) {
  std::int64_t count = 0;
  std::size_t from = 0;  // a[from] and all after it are near enough; fewer are as b grows
  for (const double value : b) {
    while (from < a.size() && value - a[from] > limit) ++from;
    count += static_cast<std::int64_t>(a.size() - from);
  }
  return count;
}

/// The k-th smallest (from 1) of all differences b - a, by halving between the extremes.
double kth_difference(std::span<const double> a, std::span<const double> b, std::int64_t k) {
  double low = b.front() - a.back();
  double high = b.back() - a.front();
  if (differences_up_to(a, b, low) >= k) return low;
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return high;
    (differences_up_to(a, b, middle) >= k ? high : low) = middle;
  }
}

/// How many differences to leave out on each side so that those between cover the shift with 1 - alpha; -1: none can.
std::int64_t left_out(std::size_t n, std::size_t m, double alpha) {
  if (n <= kMostForExact && m <= kMostForExact) {
    const std::vector<double> counts = orders_by_u(n, m);
    const double most = alpha / 2 * std::accumulate(counts.begin(), counts.end(), 0.0);
    std::int64_t c = -1;
    for (double below = 0; below + counts[static_cast<std::size_t>(c + 1)] <= most; ++c) {
      below += counts[static_cast<std::size_t>(c + 1)];
    }
    return c;
  }
  const auto dn = static_cast<double>(n);
  const auto dm = static_cast<double>(m);
  const double z = quantile(complement(boost::math::normal(), alpha / 2));
  return static_cast<std::int64_t>(std::floor(dn * dm / 2 - 0.5 - z * std::sqrt(dn * dm * (dn + dm + 1) / 12)));
}

}  // namespace

std::optional<RankTest> mann_whitney(std::span<const double> a, std::span<const double> b) {
  if (!usable(a) || !usable(b)) return std::nullopt;
  const Ranking ranking = rank(a, b);
  const auto n = static_cast<double>(a.size());
  const auto m = static_cast<double>(b.size());
  RankTest result;
  result.u = ranking.sum_b - m * (m + 1) / 2;
  result.exact = ranking.ties == 0 && a.size() <= kMostForExact && b.size() <= kMostForExact;
  const double smaller = std::min(result.u, n * m - result.u);
  result.p = result.exact ? std::min(1.0, 2 * exact_lower_tail(a.size(), b.size(), smaller))
                          : normal_two_sided(n, m, ranking.ties, n * m / 2 - smaller);
  return result;
}

std::optional<Shift> hodges_lehmann(std::span<const double> a, std::span<const double> b, double alpha) {
  if (!usable(a) || !usable(b) || !(alpha > 0 && alpha < 1)) return std::nullopt;
  const std::vector<double> from = ordered(a);
  const std::vector<double> to = ordered(b);
  const auto pairs = static_cast<std::int64_t>(a.size() * b.size());
  Shift shift;
  shift.estimate = (kth_difference(from, to, (pairs + 1) / 2) + kth_difference(from, to, pairs / 2 + 1)) / 2;
  const std::int64_t c = left_out(a.size(), b.size(), alpha);
  if (c >= 0) shift.interval = Interval{kth_difference(from, to, c + 1), kth_difference(from, to, pairs - c)};
  return shift;
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&p](std::size_t x, std::size_t y) { return p[x] < p[y]; });
  std::vector<double> corrected(p.size());
  double least = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    least = std::max(least, std::min(1.0, p[order[i]] * static_cast<double>(p.size() - i)));
    corrected[order[i]] = least;
  }
  return corrected;
}

std::optional<double> neighbour_correlation(std::span<const double> values) {
  if (values.size() < 8 || !usable(values)) return std::nullopt;
  const double middle = *mean(values);
  double squares = 0;
  double products = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    squares += (values[i] - middle) * (values[i] - middle);
    if (i > 0) products += (values[i] - middle) * (values[i - 1] - middle);
  }
  if (!(squares > 0)) return std::nullopt;
  return products / squares;
}

std::vector<double> thinned(std::span<const double> values) {
  const double r = neighbour_correlation(values).value_or(0);
  std::vector<double> result(values.begin(), values.end());
  if (r <= 0.1) return result;
  const double wanted = std::ceil((1 + r) / std::max(1e-3, 1 - r));
  const std::size_t block = std::min(static_cast<std::size_t>(wanted), values.size());
  result.clear();
  for (std::size_t first = 0; first + block <= values.size(); first += block) {
    result.push_back(*mean(values.subspan(first, block)));
  }
  return result;
}

}  // namespace attnbench::base
