// Softmax of one row, forward and backward.
#include "kernels/cpu/softmax.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

namespace attnbench::kernels {
namespace {

constexpr std::int64_t kLanes = 8;
using Lanes = std::array<float, kLanes>;

/// e^x for x <= 0 within 2e-7 relative; 0 below -88 (the smallest normal float), NaN for NaN.
///
/// x is n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 + 127 rounds x / ln 2 to n and leaves n + 127 in the low
/// bits, where a shift makes them the exponent of 2^n. ln 2 is in two parts so that r keeps its digits; e^r is its
/// Taylor sum to r^6 (the next term is below 1.3e-7).
float exp_negative(float x) {
  constexpr float kMagic = 12582912.0f + 127.0f;
  const float bounded = x < -88.0f ? -88.0f : x;
  const float shifted = bounded * 1.44269504f + kMagic;
  const float n = shifted - kMagic;
  const float r = (bounded - n * 0.693145752f) - n * 1.42860677e-6f;
  float sum = 1.0f / 720.0f;
  sum = sum * r + 1.0f / 120.0f;
  sum = sum * r + 1.0f / 24.0f;
  sum = sum * r + 1.0f / 6.0f;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const float power = std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);
  return x < -88.0f ? 0.0f : sum * power;
}

float scaled(float score, float scale) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float value = score * scale;
  const float capped = value > kLargest ? kLargest : value;  // NaN passes both comparisons unchanged
  return capped < -kLargest ? -kLargest : capped;
}

float sum_of(const Lanes& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

}  // namespace

float softmax_row(float* row, std::int64_t count, float scale) {
  for (std::int64_t j = 0; j < count; ++j) row[j] = scaled(row[j], scale);
  Lanes largest;
  largest.fill(-std::numeric_limits<float>::infinity());
  std::int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float value = row[j + static_cast<std::int64_t>(lane)];
      largest[lane] = value > largest[lane] ? value : largest[lane];
    }
  }
  for (; j < count; ++j) largest[0] = row[j] > largest[0] ? row[j] : largest[0];
  const float most = *std::max_element(largest.begin(), largest.end());
  for (j = 0; j < count; ++j) row[j] = exp_negative(row[j] - most);
  Lanes sums{};
  for (j = 0; j + kLanes <= count; j += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += row[j + static_cast<std::int64_t>(lane)];
  }
  for (; j < count; ++j) sums[0] += row[j];
  const float sum = sum_of(sums);
  const float inverse = 1.0f / sum;
  for (j = 0; j < count; ++j) row[j] *= inverse;
  return most + std::log(sum);
}

void softmax_backward_row(const float* p, float* dp, std::int64_t count, float scale) {
  Lanes sums{};
  std::int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      sums[static_cast<std::size_t>(lane)] += p[j + lane] * dp[j + lane];
    }
  }
  for (; j < count; ++j) sums[0] += p[j] * dp[j];
  const float delta = sum_of(sums);
  for (j = 0; j < count; ++j) dp[j] = p[j] * (dp[j] - delta) * scale;
}

void add_row_times_matrix(float* c, const float* a, const float* b, std::int64_t rows, std::int64_t stride,
                          std::int64_t columns) {
  // Four rows of b at a time, so that c is loaded and stored once for the four.
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float a0 = a[r], a1 = a[r + 1], a2 = a[r + 2], a3 = a[r + 3];
    const float* b0 = b + r * stride;
    const float* b1 = b0 + stride;
    const float* b2 = b1 + stride;
    const float* b3 = b2 + stride;
    for (std::int64_t j = 0; j < columns; ++j) c[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
  }
  for (; r < rows; ++r) {
    for (std::int64_t j = 0; j < columns; ++j) c[j] += a[r] * b[r * stride + j];
  }
}

bool all_finite(const float* values, std::int64_t count) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  std::uint32_t bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent);
  }
  return bad == 0;
}

}  // namespace attnbench::kernels
