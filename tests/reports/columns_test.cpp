#include "reports/columns.hpp"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <cstring>
#include <set>

#include "sample_rows.hpp"

namespace attnbench::reports {
namespace {

TEST(Columns, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const Column& column : columns()) {
    EXPECT_TRUE(names.insert(column.name).second) << column.name;
    EXPECT_EQ(find_column(column.name), &column);
    EXPECT_EQ(&columns()[index_of(column)], &column);
  }
  EXPECT_EQ(find_column("time"), nullptr);
}

// Every field but sample_times_us has a column: the fields fill the row from its start, each a Text, a Number or an
// Integer, so bytes that no column owns would be a field that was forgotten.
TEST(Columns, EveryFieldOfARowHasExactlyOneColumn) {
  const Row row;
  std::set<std::ptrdiff_t> starts;
  std::size_t bytes = 0;
  const auto* base = reinterpret_cast<const char*>(&row);
  for (const Column& column : columns()) {
    std::visit(
        [&](auto field) {
          EXPECT_TRUE(starts.insert(reinterpret_cast<const char*>(&(row.*field)) - base).second) << column.name;
          bytes += sizeof(row.*field);
        },
        column.field);
  }
  EXPECT_EQ(bytes + sizeof(row.sample_times_us), sizeof(Row));
}

TEST(Columns, SettingAColumnChangesTheRowAndMakesItPresent) {
  for (const Column& column : columns()) {
    Row row;
    std::visit([&row](auto field) { row.*field = {}; }, column.field);
    EXPECT_TRUE(is_absent(row, column)) << column.name;
    EXPECT_EQ(plain_text(row, column), "") << column.name;
    if (const auto* text = std::get_if<Text Row::*>(&column.field)) row.*(*text) = "word";
    if (const auto* number = std::get_if<Number Row::*>(&column.field)) row.*(*number) = 0.5;
    if (const auto* integer = std::get_if<Integer Row::*>(&column.field)) row.*(*integer) = 17;
    EXPECT_FALSE(is_absent(row, column)) << column.name;
    EXPECT_NE(row, Row{}) << column.name;
    EXPECT_NE(plain_text(row, column), "") << column.name;
  }
}

TEST(Columns, EveryDocIsOneSentenceAndEveryUnitStandsInTheName) {
  for (const Column& column : columns()) {
    EXPECT_GT(column.doc.size(), 15u) << column.name;
    EXPECT_EQ(column.doc.back(), '.') << column.name;
    EXPECT_EQ(column.doc.find('\n'), std::string_view::npos) << column.name;
    EXPECT_EQ(column.doc.find('|'), std::string_view::npos) << column.name;
    const bool bytes_named = column.name.find("bytes") != std::string_view::npos;
    EXPECT_EQ(column.unit == "bytes", bytes_named) << column.name;
    EXPECT_EQ(column.unit == "us", column.name.find("_us") != std::string_view::npos) << column.name;
    EXPECT_EQ(column.unit == "%", column.name.ends_with("_pct")) << column.name;
  }
}

TEST(Columns, TheFixedNamesAreThere) {
  for (const char* name :
       {"schema_version", "kernel",      "variant",         "device",         "dtype",      "pass",
        "causal",         "batch",       "heads",           "kv_heads",       "d_model",    "head_dim",
        "seq_len",        "seq_len_k",   "window",          "cache",          "timing",     "status",
        "reason",         "stop_reason", "samples",         "time_us_median", "tflops",     "gbps",
        "intensity",      "peak_bytes",  "predicted_bytes", "err_abs_max",    "err_rel_max"}) {
    EXPECT_NE(find_column(name), nullptr) << name;
  }
}

TEST(NumberText, IsShortAndReadsBackToTheSameDouble) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(1234567.0), "1234567");
  EXPECT_EQ(number_text(8.6e9), "8600000000");
  EXPECT_EQ(number_text(1e300), "1e+300");
  EXPECT_EQ(number_text(2.5e-7), "2.5e-07");
  for (const double value : {1.0 / 3, 5e-324, 1.7976931348623157e308, -123.456e-6, 1e15, 999999999999999.9, 1e-6}) {
    EXPECT_EQ(std::strtod(number_text(value).c_str(), nullptr), value) << number_text(value);
  }
}

TEST(NumberText, IsEmptyForWhatIsNoNumber) {
  EXPECT_EQ(number_text(std::nan("")), "");
  EXPECT_EQ(number_text(INFINITY), "");
  Row row;
  row.tflops = std::nan("");
  EXPECT_TRUE(is_absent(row, *find_column("tflops")));
}

TEST(NumberText, DoesNotDependOnTheLocale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  const bool has_comma_locale = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
  EXPECT_EQ(number_text(1234.5), "1234.5");
  std::setlocale(LC_ALL, before.c_str());
  if (!has_comma_locale) GTEST_SKIP() << "the locale de_DE.UTF-8 is not installed";
}

}  // namespace
}  // namespace attnbench::reports
