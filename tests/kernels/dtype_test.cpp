// Conversions of the 16-bit types, every value of them.
#include "kernels/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attnbench::kernels {
namespace {

/// The value of a half by its definition, in double.
double half_by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Fp16, EveryValueIsWhatItsBitsSay) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const double expected = half_by_definition(static_cast<std::uint16_t>(bits));
    const double value = static_cast<double>(to_float(Fp16{static_cast<std::uint16_t>(bits)}));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(value, expected) << bits;
    }
  }
}

TEST(Fp16, EveryValueComesBackFromFloat) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float value = to_float(Fp16{static_cast<std::uint16_t>(bits)});
    const std::uint16_t back = to_fp16(value).bits;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(Fp16{back}))) << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

TEST(Bf16, EveryValueComesBackFromFloat) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float value = to_float(Bf16{static_cast<std::uint16_t>(bits)});
    const std::uint16_t back = to_bf16(value).bits;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(Bf16{back}))) << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

/// Between any two neighbours: just below the middle goes down, just above goes up, the middle goes to the even one.
template <typename T, typename Convert>
void expect_nearest_even(Convert convert, std::uint16_t largest) {
  for (std::uint16_t bits = 0; bits < largest; ++bits) {
    const double low = static_cast<double>(to_float(T{bits}));
    const double high = static_cast<double>(to_float(T{static_cast<std::uint16_t>(bits + 1)}));
    const auto middle = static_cast<float>((low + high) / 2);
    if (static_cast<double>(middle) != (low + high) / 2) continue;  // not a float itself: below every bf16's reach
    const std::uint16_t even = bits % 2 == 0 ? bits : static_cast<std::uint16_t>(bits + 1);
    ASSERT_EQ(convert(middle).bits, even) << bits;
    ASSERT_EQ(convert(std::nextafterf(middle, 0.0f)).bits, bits) << bits;
    ASSERT_EQ(convert(std::nextafterf(middle, HUGE_VALF)).bits, bits + 1) << bits;
    ASSERT_EQ(convert(-middle).bits, even | 0x8000) << bits;
  }
}

TEST(Fp16, RoundsToNearestEvenEverywhere) { expect_nearest_even<Fp16>(to_fp16, 0x7bff); }
TEST(Bf16, RoundsToNearestEvenEverywhere) { expect_nearest_even<Bf16>(to_bf16, 0x7f7f); }

TEST(Fp16, OverflowsToInfinityFrom65520) {
  EXPECT_EQ(to_fp16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_fp16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_fp16(-1e30f).bits, 0xfc00);
}

}  // namespace
}  // namespace attnbench::kernels
