#include "reports/speedup.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "sample_rows.hpp"

namespace attnbench::reports {
namespace {

Document pair_of(const std::vector<Row>& rows) { return {"", rows, {}}; }

TEST(Speedup, IsTheBaselineTimeOverTheKernelTimeAndThePeakOfThePair) {
  const auto all = speedups(pair_of({measured_row("naive", "fwd", 900, 300), measured_row("naive", "bwd", 100, 700),
                                     measured_row("flash", "fwd", 300, 100), measured_row("flash", "bwd", 200, 50)}),
                            "naive");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].kernel, "flash");
  EXPECT_DOUBLE_EQ(*all[0].fwd, 3.0);
  EXPECT_DOUBLE_EQ(*all[0].bwd, 0.5);
  EXPECT_DOUBLE_EQ(*all[0].memory, 7.0);
  EXPECT_FALSE(all[0].fwd_bwd);
}

TEST(Speedup, OfOnlyTheForwardTakesTheForwardPeak) {
  const auto all =
      speedups(pair_of({measured_row("naive", "fwd", 9, 300), measured_row("flash", "fwd", 3, 100)}), "naive");
  EXPECT_DOUBLE_EQ(*all.at(0).memory, 3.0);
  EXPECT_FALSE(all[0].bwd);
}

TEST(Speedup, OfMemoryIsOfThePairEvenWhenTheJointPassFailed) {
  std::vector<Row> rows{measured_row("naive", "fwd", 900, 300),   measured_row("naive", "bwd", 100, 700),
                        measured_row("flash", "fwd", 300, 100),   measured_row("flash", "bwd", 200, 50),
                        measured_row("naive", "fwd_bwd", 900, 1), measured_row("flash", "fwd_bwd", 300, 1)};
  rows[4].status = status::kOom;
  EXPECT_DOUBLE_EQ(*speedups(pair_of(rows), "naive").at(0).memory, 7.0);
  const Document only_joint =
      pair_of({measured_row("naive", "fwd_bwd", 800, 9), measured_row("flash", "fwd_bwd", 200, 3)});
  EXPECT_DOUBLE_EQ(*speedups(only_joint, "naive").at(0).fwd_bwd, 4.0);
  EXPECT_DOUBLE_EQ(*speedups(only_joint, "naive").at(0).memory, 3.0);
}

TEST(Speedup, IsNeverMadeFromARowThatIsNotOk) {
  for (const char* word : {status::kIncorrect, status::kUnsupported, status::kOom, status::kOomPredicted,
                           status::kTimeout, status::kFailed, status::kDeviceLost, status::kInterrupted, "?", ""}) {
    for (const std::size_t broken : {0u, 1u, 2u, 3u}) {
      std::vector<Row> rows{measured_row("naive", "fwd", 900, 300), measured_row("naive", "bwd", 100, 700),
                            measured_row("flash", "fwd", 300, 100), measured_row("flash", "bwd", 200, 50)};
      rows[broken].status = word;  // its time and memory are left in place, to be ignored
      const auto all = speedups(pair_of(rows), "naive");
      ASSERT_EQ(all.size(), 1u);
      EXPECT_EQ(all[0].fwd.has_value(), broken % 2 == 1) << word << broken;
      EXPECT_EQ(all[0].bwd.has_value(), broken % 2 == 0) << word << broken;
      EXPECT_FALSE(all[0].memory) << word << broken;
    }
  }
}

TEST(Speedup, IsAbsentWithoutATimeOrWithAnother) {
  Row naive = measured_row("naive", "fwd", 900, 300);
  Row flash = measured_row("flash", "fwd", 300, 100);
  flash.time_us_median = 0;
  EXPECT_FALSE(speedups(pair_of({naive, flash}), "naive").at(0).fwd);
  flash.time_us_median.reset();
  EXPECT_FALSE(speedups(pair_of({naive, flash}), "naive").at(0).fwd);
  flash.time_us_median = 300;
  flash.timing = "graph";
  EXPECT_FALSE(speedups(pair_of({naive, flash}), "naive").at(0).fwd) << "two clocks are not comparable";
  flash.timing = naive.timing;
  flash.peak_bytes = 0;
  EXPECT_FALSE(speedups(pair_of({naive, flash}), "naive").at(0).memory);
}

TEST(Speedup, ComparesOnlyWithinAPoint) {
  for (const Column* axis : axis_columns()) {
    Row naive = measured_row("naive", "fwd", 900, 300);
    Row flash = measured_row("flash", "fwd", 300, 100);
    if (const auto* text = std::get_if<Text Row::*>(&axis->field)) flash.*(*text) = "other";
    if (const auto* number = std::get_if<Number Row::*>(&axis->field)) flash.*(*number) = 0.75;
    if (const auto* integer = std::get_if<Integer Row::*>(&axis->field)) flash.*(*integer) = 77;
    const auto all = speedups(pair_of({naive, flash}), "naive");
    EXPECT_FALSE(all.at(0).fwd) << axis->name;
    EXPECT_FALSE(all.at(0).memory) << axis->name;
  }
}

TEST(Speedup, TellsVariantsApartOnlyWhereThereAreSeveral) {
  Row one = measured_row("flash", "fwd", 300, 100);
  one.variant = "highway";
  Row two = measured_row("flash", "fwd", 100, 100);
  two.variant = "other";
  const Row naive = measured_row("naive", "fwd", 600, 300);
  EXPECT_EQ(speedups(pair_of({naive, one}), "naive").at(0).kernel, "flash");
  const auto all = speedups(pair_of({naive, one, two}), "naive");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].kernel, "flash:highway");
  EXPECT_DOUBLE_EQ(*all[0].fwd, 2.0);
  EXPECT_EQ(all[1].kernel, "flash:other");
  EXPECT_DOUBLE_EQ(*all[1].fwd, 6.0);
  EXPECT_EQ(speedups(pair_of({naive, one, two}), "flash:other").size(), 2u);
}

TEST(Speedup, ABaselineCanBeAVariantWhateverItAppended) {
  Row row = measured_row("blas", "fwd", 300, 100);
  row.variant = "onednn+fp32";
  for (const char* word : {"blas", "blas:onednn", "blas:onednn+fp32"}) EXPECT_TRUE(is_baseline(row, word)) << word;
  for (const char* word : {"blas:one", "blas:onednn+", "blas:", "onednn", "flash", ""}) {
    EXPECT_FALSE(is_baseline(row, word)) << word;
  }
  const Row naive = measured_row("naive", "fwd", 600, 300);
  const auto all = speedups(pair_of({naive, row}), "blas:onednn");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].kernel, "naive");
  EXPECT_DOUBLE_EQ(*all[0].fwd, 0.5);
}

TEST(Speedup, OverABaselineThatIsNotThereIsAbsent) {
  const auto all = speedups(pair_of({measured_row("flash", "fwd", 3, 1)}), "naive");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_FALSE(all[0].fwd);
}

TEST(SpeedupRange, IsGeometric) {
  std::vector<Speedup> all(3);
  all[0].kernel = all[1].kernel = all[2].kernel = "flash";
  all[0].fwd = 2;
  all[1].fwd = 8;
  const auto ranges = speedup_ranges(all, &Speedup::fwd);
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges[0].points, 2u);
  EXPECT_DOUBLE_EQ(ranges[0].mean, 4.0);
  EXPECT_DOUBLE_EQ(ranges[0].low, 2.0);
  EXPECT_DOUBLE_EQ(ranges[0].high, 8.0);
  EXPECT_TRUE(speedup_ranges(all, &Speedup::bwd).empty());
}

TEST(Axes, ThatDoNotVaryGoToTheHeading) {
  const Row small = measured_row("flash", "fwd", 3, 1, 16, 256);
  const Row large = measured_row("flash", "fwd", 3, 1, 64, 1024);
  const AxisSplit split = split_axes({&small, &large});
  ASSERT_EQ(split.varying.size(), 2u);
  EXPECT_EQ(split.varying[0]->name, "d_model");
  EXPECT_EQ(split.varying[1]->name, "seq_len");
  EXPECT_EQ(axes_sentence(small, split.fixed), "cpu, fp32, batch 8, heads 1, causal, threads 2, cache cold");
  Row grouped = large;
  grouped.kv_heads = 4;
  grouped.scale = 0.5;
  EXPECT_EQ(split_axes({&small, &grouped}).varying.size(), 4u);
}

}  // namespace
}  // namespace attnbench::reports
