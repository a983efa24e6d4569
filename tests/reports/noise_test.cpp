// Noise floors: measured from launches, written, read back, refused when damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/noise_json.hpp"
#include "sample_rows.hpp"

namespace attnbench::reports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Document launch(double flash_us, double naive_us) {
  Document document;
  document.rows = {measured_row("flash", "fwd", flash_us, 1), measured_row("naive", "fwd", naive_us, 1)};
  for (Row& row : document.rows) row.fingerprint = "0123";
  return document;
}

TEST(Noise, TheFloorIsTheLargestChangeBetweenTwoLaunches) {
  Document third = launch(103, 1000);
  third.rows[1].status = status::kFailed;
  third.rows[1].time_us_median.reset();
  const Noise noise = noise_of({launch(100, 1000), launch(110, 1000), third});
  ASSERT_EQ(noise.rows.size(), 2u);
  EXPECT_NEAR(noise.rows.at("flash/fwd/d16_s256").floor_pct, 10, 1e-9);
  EXPECT_THAT(noise.rows.at("flash/fwd/d16_s256").medians_us, ElementsAre(100, 110, 103));
  EXPECT_EQ(noise.rows.at("naive/fwd/d16_s256").floor_pct, 0);
  EXPECT_EQ(noise.fingerprint, "0123");
}

TEST(Noise, ARowOfOneLaunchHasNoFloor) { EXPECT_TRUE(noise_of({launch(100, 1000)}).rows.empty()); }

TEST(Noise, ReadsBackWhatItWrote) {
  const Noise noise = noise_of({launch(100, 1000), launch(100.0 / 3, 1001)});
  const auto back = parse_noise(to_json(noise), "noise.json");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->fingerprint, noise.fingerprint);
  ASSERT_EQ(back->rows.size(), 2u);
  for (const auto& [key, row] : noise.rows) {
    EXPECT_EQ(back->rows.at(key).floor_pct, row.floor_pct);
    EXPECT_EQ(back->rows.at(key).medians_us, row.medians_us);
  }
}

TEST(Noise, WhatIsNotSuchAFileIsRefusedWithWhatToGive) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "this is not JSON"},
      {"{", "this is not JSON"},
      {"[]", "these are not noise floors"},
      {R"({"schema_version":1})", "these are not noise floors"},
      {R"({"attnbench_noise":2,"rows":[]})", "version 2 is not known"},
      {R"({"attnbench_noise":1})", "no array of rows"},
      {R"({"attnbench_noise":1,"rows":[1]})", "a row is not an object"},
      {R"({"attnbench_noise":1,"rows":[{"floor_pct":1}]})", "no key"},
      {R"({"attnbench_noise":1,"rows":[{"key":"a","floor_pct":-1}]})", "a has no floor_pct of 0 or more"},
      {R"({"attnbench_noise":1,"rows":[{"key":"a","floor_pct":"1"}]})", "a has no floor_pct"},
      {R"({"attnbench_noise":1,"rows":[{"key":"a","floor_pct":1},{"key":"a","floor_pct":1}]})", "a is there twice"},
      {R"({"attnbench_noise":1,"rows":[{"key":"a","floor_pct":1,"medians_us":[null]}]})", "must hold numbers"}};
  for (const auto& [bytes, message] : cases) {
    const auto noise = parse_noise(bytes, "noise.json");
    ASSERT_FALSE(noise) << bytes;
    EXPECT_EQ(noise.error().kind, base::ErrorKind::kUnreadable);
    EXPECT_THAT(noise.error().message, HasSubstr(message));
    EXPECT_THAT(noise.error().message, HasSubstr("attnbench noise --write"));
  }
  EXPECT_THAT(load_noise("/").error().message, HasSubstr("not a file"));
  EXPECT_THAT(load_noise("/no/such").error().message, HasSubstr("No such file"));
}

}  // namespace
}  // namespace attnbench::reports
