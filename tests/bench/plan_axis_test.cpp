// The grammar of axes: what is read, and where a mistake is.
#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/base/rng.hpp"
#include "bench/plan/axis.hpp"

namespace attnbench::plan {
namespace {

using Values = std::vector<std::int64_t>;

struct Valid {
  const char* text;
  Values values;
};

class ValidAxis : public testing::TestWithParam<Valid> {};

TEST_P(ValidAxis, IsReadAsTheGrammarSays) {
  const auto values = parse_axis(GetParam().text, {1, std::int64_t{1} << 40, true});
  ASSERT_TRUE(values) << values.error().message;
  EXPECT_EQ(*values, GetParam().values);
}

INSTANTIATE_TEST_SUITE_P(
    Grammar, ValidAxis,
    testing::Values(Valid{"256", {256}}, Valid{"256,1024,4096", {256, 1024, 4096}}, Valid{" 1 , 2 ", {1, 2}},
                    Valid{"[1,2]", {1, 2}}, Valid{"1k", {1024}}, Valid{"1K", {1024}}, Valid{"1Ki", {1024}},
                    Valid{"2M", {2097152}}, Valid{"2Mi", {2097152}}, Valid{"3:6", {3, 4, 5, 6}},
                    Valid{"256:1024:256", {256, 512, 768, 1024}}, Valid{"256:1000:256", {256, 512, 768}},
                    Valid{"512:8k:x2", {512, 1024, 2048, 4096, 8192}}, Valid{"512:8k:*4", {512, 2048, 8192}},
                    Valid{"512:9000:x2", {512, 1024, 2048, 4096, 8192}}, Valid{"2^9..2^11", {512, 1024, 2048}},
                    Valid{"3^0..3^2", {1, 3, 9}}, Valid{"2^12", {4096}}, Valid{"2^10k", {1048576}}, Valid{"7:7", {7}},
                    Valid{"2^5..2^5", {32}}, Valid{"4096,256,4096", {4096, 256}},
                    Valid{"1024,256:1024:x2", {1024, 256, 512}}, Valid{"none,64", {-1, 64}}, Valid{"-1", {-1}},
                    Valid{"1099511627776", {std::int64_t{1} << 40}}));

struct Invalid {
  const char* text;
  std::size_t position;
  const char* message;
};

class InvalidAxis : public testing::TestWithParam<Invalid> {};

TEST_P(InvalidAxis, IsRefusedAtTheExactPositionWithAHint) {
  const auto values = parse_axis(GetParam().text);
  ASSERT_FALSE(values);
  EXPECT_EQ(values.error().position, GetParam().position) << values.error().message;
  EXPECT_THAT(values.error().message, testing::HasSubstr(GetParam().message));
  EXPECT_FALSE(values.error().hint.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Grammar, InvalidAxis,
    testing::Values(Invalid{"", 0, "missing"}, Invalid{"abc", 0, "not a number"}, Invalid{"256,,512", 4, "missing"},
                    Invalid{"256,", 4, "missing"}, Invalid{",256", 0, "missing"}, Invalid{"256;512", 3, "not expected"},
                    Invalid{"1.5k", 1, "whole"}, Invalid{"12q", 2, "suffix"}, Invalid{"256:1024:0", 9, "step"},
                    Invalid{"256:1024:-256", 9, "step"}, Invalid{"1024:256", 5, "reversed"},
                    Invalid{"1024:256:x2", 5, "reversed"}, Invalid{"2^13..2^9", 6, "reversed"},
                    Invalid{"256:4k:x1", 8, "factor"}, Invalid{"256:4k:x0", 8, "factor"},
                    Invalid{"256:4k:x", 8, "missing"}, Invalid{"256:", 4, "missing"}, Invalid{"512..1024", 0, "powers"},
                    Invalid{"2^9..3^11", 5, "powers"}, Invalid{"0", 0, "too small"}, Invalid{"64,-1", 3, "too small"},
                    Invalid{"99999999999999999999", 0, "64 bits"}, Invalid{"8,2^64", 2, "64 bits"},
                    Invalid{"9007199254740992k", 0, "64 bits"}, Invalid{"2^41", 0, "too large"},
                    Invalid{"1:20000", 0, "more than 10000"}, Invalid{"none", 0, "not a number"},
                    Invalid{"[1,2", 0, "not a number"}, Invalid{"1:2:3:4", 5, "not expected"}));

TEST(Axis, ReadsBackWhatItFormats) {
  const base::Rng rng(7, 0);
  for (std::uint64_t round = 0; round < 200; ++round) {
    Values values;
    const std::uint64_t count = 1 + rng.bits(round * 64) % 20;
    for (std::uint64_t i = 1; i <= count; ++i) {
      const std::uint64_t bits = rng.bits(round * 64 + i);
      const auto value = static_cast<std::int64_t>(1 + (bits >> 20) % (std::uint64_t{1} << (bits % 40)));
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
    const auto read = parse_axis(format_axis(values));
    ASSERT_TRUE(read) << format_axis(values);
    EXPECT_EQ(*read, values);
  }
}

TEST(Axis, RangesAreTheirDefinition) {
  for (std::int64_t low = 1; low < 6; ++low) {
    for (std::int64_t high = low; high < 30; ++high) {
      for (std::int64_t step = 1; step < 8; ++step) {
        Values linear;
        for (std::int64_t v = low; v <= high; v += step) linear.push_back(v);
        const std::string range = std::to_string(low) + ":" + std::to_string(high) + ":";
        EXPECT_EQ(*parse_axis(range + std::to_string(step)), linear);
        if (step < 2) continue;
        Values geometric;
        for (std::int64_t v = low; v <= high; v *= step) geometric.push_back(v);
        EXPECT_EQ(*parse_axis(range + "x" + std::to_string(step)), geometric);
      }
    }
  }
}

TEST(Axis, ShowsACaretUnderTheMistake) {
  const std::string text = "256:1024:0";
  const auto values = parse_axis(text);
  ASSERT_FALSE(values);
  EXPECT_EQ(show(values.error(), "--seq-len", text),
            "--seq-len: the step must be at least 1\n"
            "  256:1024:0\n"
            "           ^\n"
            "  try: e.g. 256:1024:256, or x2 to double each time");
}

TEST(Interval, TakesANumberOrTwoBounds) {
  const auto one = parse_interval("16k", kTermLimits);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->low, 16384);
  EXPECT_EQ(one->high, 16384);
  const auto two = parse_interval("8k:64k", kTermLimits);
  ASSERT_TRUE(two);
  EXPECT_EQ(two->low, 8192);
  EXPECT_EQ(two->high, 65536);
  const auto none = parse_interval("none", kTermLimits);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->low, -1);
  EXPECT_EQ(none->high, -1);
  EXPECT_FALSE(parse_interval("none", {}));
  EXPECT_EQ(parse_interval("64k:8k", kTermLimits).error().position, 4u);
  EXPECT_EQ(parse_interval("8k,9k", kTermLimits).error().position, 2u);
}

}  // namespace
}  // namespace attnbench::plan
