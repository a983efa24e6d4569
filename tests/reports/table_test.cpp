#include "reports/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/format.hpp"
#include "sample_rows.hpp"

namespace attnbench::reports {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string whole_table(const Document& document, const TableStyle& style) {
  std::string table = table_header(style);
  for (const Row& row : document.rows) table += table_row(row, style);
  return table + table_summary(document, {}, style);
}

TEST(Table, MatchesItsGoldenFile) {
  expect_golden("every_status.table.txt", whole_table(every_status(), {}));
  expect_golden("every_status.table_color.txt", whole_table(every_status(), {true, 80}));
}

TEST(Table, FitsTheTerminal) {
  Document document = every_status();
  Row& row = document.rows[1];
  row.kernel = "a_kernel_with_a_long_name";
  row.batch = row.heads = row.seq_len = row.window = 1234567890123;
  row.time_us_median = 1e30;
  row.tflops = row.gbps = 123456;
  row.fma_pct = 100;
  row.err_rel_max = 1.5e-300;
  row.peak_bytes = std::int64_t{1} << 62;
  for (const int width : {0, 120, 119, 100, 80, 200}) {
    std::istringstream lines(whole_table(document, {false, width}));
    const std::size_t room = width == 0 ? 120 : static_cast<std::size_t>(width);
    for (std::string line; std::getline(lines, line) && line != "";) EXPECT_LE(cell_count(line), room) << line;
  }
}

TableStyle fitted_to(const Document& document, int width = 0) {
  TableFit fit;
  for (const Row& row : document.rows) fit.add(row);
  return fit.applied_to({false, width});
}

TEST(Table, CutsOffNothingThatTellsItsRowsApart) {
  Row row = measured_row("blas", "fwd", 10, 1000);
  row.variant = "onednn+fp32";
  row.dtype = "fp16";
  row.batch = 128;
  row.heads = 16;
  row.kv_heads = 4;
  row.seq_len = 1024;
  row.seq_len_k = 16000;
  Document document{"", {row, row}, {}};
  document.rows[1].window = 7;
  for (const int width : {0, 80, 200}) {
    const std::string table = whole_table(document, fitted_to(document, width));
    EXPECT_THAT(table, HasSubstr("blas:onednn+fp32 ")) << width;
    EXPECT_THAT(table, HasSubstr("B128 H16/4 D16 S1024x16000 causal w7 ")) << width;
    EXPECT_THAT(table, Not(HasSubstr("…"))) << width;
  }
  EXPECT_THAT(whole_table(document, fitted_to(document)), HasSubstr("error")) << "a file has room for every column";
}

TEST(Table, NamesThreadsAndDevicesWhereRowsDifferInThem) {
  Document document{"", {measured_row("flash", "fwd", 1, 1), measured_row("flash", "fwd", 1, 1)}, {}};
  const std::string device = " " + document.rows[0].device + " ";
  EXPECT_THAT(whole_table(document, fitted_to(document)), Not(HasSubstr(" t8 ")));
  document.rows[0].threads = 1;
  document.rows[1].threads = 8;
  const std::string table = whole_table(document, fitted_to(document));
  EXPECT_THAT(table, HasSubstr(" causal t1 "));
  EXPECT_THAT(table, HasSubstr(" causal t8 "));
  document.rows[1].device = "cuda:1";
  EXPECT_THAT(whole_table(document, fitted_to(document)), HasSubstr(" causal t1 " + document.rows[0].device + " "));
  EXPECT_THAT(whole_table(document, fitted_to(document)), HasSubstr(" causal t8 cuda:1 "));
}

TEST(Table, LeavesRoomForAConversionThatARowMayStillName) {
  TableFit fit;  // what a plan knows: the variant before it has run
  Row row = measured_row("blas", "fwd", 10, 1000);
  row.variant = "onednn";
  row.dtype = "bf16";
  fit.add(row);
  row.variant = "onednn+fp32";
  EXPECT_THAT(table_row(row, fit.applied_to({})), HasSubstr("blas:onednn+fp32 "));
}

TEST(Table, AnIntervalWiderThanItsMedianKeepsItsDigits) {
  Row row = every_status().rows[0];
  row.time_us_median = 100;
  row.time_us_ci_low = 40;
  row.time_us_ci_high = 300.8;
  EXPECT_THAT(table_row(row, {}), HasSubstr(" 130% "));
  row.time_us_ci_high = 239.92;  // 99.96 %
  EXPECT_THAT(table_row(row, {}), HasSubstr(" 100% "));
  row.time_us_ci_high = 239.8;
  EXPECT_THAT(table_row(row, {}), HasSubstr("99.9% "));
}

TEST(Table, GivesTheWholeReasonOfARowWithoutNumbers) {
  std::string reason;
  for (int i = 0; i < 60; ++i) reason += "word" + std::to_string(i) + " ";
  const std::string text = table_row(refused_row("blas", "fwd", status::kUnsupported, reason), {});
  EXPECT_THAT(text, HasSubstr("unsupported: word0 word1"));
  EXPECT_THAT(text, HasSubstr("word59"));
  EXPECT_THAT(text, Not(HasSubstr("n/a")));
}

TEST(Table, KeepsControlCharactersOfARowFromTheTerminal) {
  const std::string text = table_row(refused_row("blas\x1b[2J", "fwd", status::kFailed, "a\nb\rc\x1b[31m"), {});
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST(Table, UsesColorOnlyWhenAsked) {
  EXPECT_THAT(whole_table(every_status(), {}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(whole_table(every_status(), {true, 0}), HasSubstr("\x1b[31mincorrect"));
}

TEST(TableSummary, SaysWhyThereIsNoSpeedup) {
  const Document document{"", {measured_row("flash", "fwd", 1, 1)}, {}};
  EXPECT_THAT(table_summary(document, {}, {}), HasSubstr("No speed-up over naive"));
  EXPECT_THAT(table_summary(document, {"flash"}, {}), HasSubstr("1 row: 1 ok"));
}

}  // namespace
}  // namespace attnbench::reports
