// Quantities as people read and write them, and near matches.
#include <gtest/gtest.h>

#include <array>

#include "bench/base/suggest.hpp"
#include "bench/base/units.hpp"

namespace attnbench::base {
namespace {

TEST(Units, BytesAreBinaryWithThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(1024.0 * 1024 * 1023.6), "1.00 GiB");
  EXPECT_EQ(format_bytes(144.0 * 1024 * 1024 * 1024), "144 GiB");
}

TEST(Units, TimesTakeTheUnitThatFits) {
  EXPECT_EQ(format_time_us(1.234), "1.23 us");
  EXPECT_EQ(format_time_us(999.7), "1.00 ms");
  EXPECT_EQ(format_time_us(45600), "45.6 ms");
  EXPECT_EQ(format_time_us(1.2e6), "1.20 s");
  EXPECT_EQ(format_time_us(125e6), "2 min 5 s");
  EXPECT_EQ(format_time_us(7200e6), "2.0 h");
}

TEST(Units, CountsUseTheSuffixesOfTheAxes) {
  EXPECT_EQ(format_count(16384), "16k");
  EXPECT_EQ(format_count(1048576), "1M");
  EXPECT_EQ(format_count(1000), "1000");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(count_suffix("Ki"), 1024);
  EXPECT_EQ(count_suffix("G"), std::nullopt);
}

TEST(Units, SecondsTakeASuffix) {
  EXPECT_EQ(parse_seconds("3"), 3.0);
  EXPECT_EQ(parse_seconds("0.5s"), 0.5);
  EXPECT_EQ(parse_seconds("500ms"), 0.5);
  EXPECT_EQ(parse_seconds("2min"), 120.0);
  EXPECT_EQ(parse_seconds("1h"), 3600.0);
  for (const char* wrong : {"", "s", "-1", "nan", "inf", "3 s", "0x10", "3sec", "1e999"}) {
    EXPECT_EQ(parse_seconds(wrong), std::nullopt) << wrong;
  }
}

TEST(Suggest, DistanceCountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("flash", "flash"), 0u);
  EXPECT_EQ(edit_distance("falsh", "flash"), 1u);
  EXPECT_EQ(edit_distance("seq_len", "SEQ-LEN"), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Suggest, NamesTheNearestOrAll) {
  constexpr std::array<std::string_view, 3> kKnown{"naive", "blas", "flash"};
  EXPECT_EQ(nearest("flahs", kKnown), "flash");
  EXPECT_EQ(nearest("fla", kKnown), "flash");
  EXPECT_EQ(nearest("cudnn", kKnown), "");
  EXPECT_EQ(did_you_mean("bals", kKnown), "; did you mean \"blas\"?");
  EXPECT_EQ(did_you_mean("cudnn", kKnown), "; known: naive, blas, flash");
}

}  // namespace
}  // namespace attnbench::base
