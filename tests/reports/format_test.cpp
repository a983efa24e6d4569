#include "reports/format.hpp"

#include <gtest/gtest.h>

namespace attnbench::reports {
namespace {

TEST(Format, PicksTheUnitAfterRounding) {
  EXPECT_EQ(time_text(0.5), "0.50 us");
  EXPECT_EQ(time_text(12.34), "12.3 us");
  EXPECT_EQ(time_text(999.4), "999 us");
  EXPECT_EQ(time_text(999.96), "1.00 ms");
  EXPECT_EQ(time_text(2.5e6), "2.50 s");
  EXPECT_EQ(rate_text(0.0567), "56.7 GFLOP/s");
  EXPECT_EQ(rate_text(2.345), "2.35 TFLOP/s");
  EXPECT_EQ(rate_text(0.00001), "10.0 MFLOP/s");
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(0x1p30), "1.00 GiB");
  EXPECT_EQ(ratio_text(9.73), "9.73x");
  EXPECT_EQ(error_text(0), "0");
  EXPECT_EQ(error_text(2.34e-6), "2.3e-06");
}

TEST(Format, HalfTheIntervalIsAShareOfTheMedian) {
  Row row;
  EXPECT_FALSE(ci_half_width_pct(row));
  row.time_us_median = 200;
  row.time_us_ci_low = 190;
  EXPECT_FALSE(ci_half_width_pct(row));
  row.time_us_ci_high = 214;
  EXPECT_DOUBLE_EQ(*ci_half_width_pct(row), 6.0);
}

TEST(Format, CutsAndPadsByCodePoint) {
  EXPECT_EQ(cell_count("größe"), 5u);
  EXPECT_EQ(fitted("größe", 5), "größe");
  EXPECT_EQ(fitted("größer", 5), "größ…");
  EXPECT_EQ(fitted("ab", 0), "");
  EXPECT_EQ(padded_left("ß", 3), "  ß");
  EXPECT_EQ(padded_right("ß", 3), "ß  ");
  EXPECT_EQ(one_line("a\r\n\tb\x7f"), "a b ");
}

TEST(Format, AVariantIsNamedWhereItSaysMore) {
  Row row;
  row.kernel = "naive";
  EXPECT_EQ(kernel_text(row), "naive");
  row.variant = "naive";
  EXPECT_EQ(kernel_text(row), "naive");
  row.variant = "openmp";
  EXPECT_EQ(kernel_text(row), "naive:openmp");
}

}  // namespace
}  // namespace attnbench::reports
