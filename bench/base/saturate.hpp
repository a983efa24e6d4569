// Products and sums of counts that stay at the top instead of wrapping. Pure.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace attnbench::base {

inline constexpr std::uint64_t kMostCount = std::numeric_limits<std::uint64_t>::max();

/// The product of counts, none of them negative; kMostCount where it does not fit. A factor of 0 gives 0.
constexpr std::uint64_t saturating_product(std::initializer_list<std::int64_t> factors) {
  std::uint64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor == 0) return 0;
  }
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, static_cast<std::uint64_t>(factor), &product)) return kMostCount;
  }
  return product;
}

constexpr std::uint64_t saturating_sum(std::initializer_list<std::uint64_t> terms) {
  std::uint64_t sum = 0;
  for (const std::uint64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) return kMostCount;
  }
  return sum;
}

}  // namespace attnbench::base
