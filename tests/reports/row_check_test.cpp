#include "reports/row_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/columns.hpp"
#include "reports/rows_io.hpp"
#include "sample_rows.hpp"

namespace attnbench::reports {
namespace {

using ::testing::HasSubstr;

template <typename Value>
std::string fault_with(Value Row::*field, const Value& value, const std::string& kernel = "naive") {
  Row row = measured_row(kernel, "fwd", 1000, 4096);
  row.*field = value;
  return fault_of(row);
}

TEST(RowCheck, WhatSweepsWriteIsPossible) {
  for (const Row& row : every_status().rows) EXPECT_EQ(fault_of(row), "") << row.key;
}

TEST(RowCheck, WordsAreThoseThatAreKnown) {
  EXPECT_THAT(fault_with<Text>(&Row::status, "fantastic"),
              HasSubstr("column status does not know \"fantastic\"; known: ok,"));
  EXPECT_THAT(fault_with<Text>(&Row::status, "incorect"), HasSubstr("did you mean \"incorrect\"?"));
  EXPECT_THAT(fault_with<Text>(&Row::pass, "sideways"),
              HasSubstr("column pass does not know \"sideways\"; known: fwd"));
  EXPECT_THAT(fault_with<Text>(&Row::dtype, "fp64"), HasSubstr("column dtype"));
  EXPECT_THAT(fault_with<Text>(&Row::cache, "warm"), HasSubstr("column cache"));
  EXPECT_THAT(fault_with<Text>(&Row::timing, "auto"), HasSubstr("column timing"));
  EXPECT_EQ(fault_with<Text>(&Row::pass, ""), "");
  EXPECT_LT(fault_with<Text>(&Row::pass, std::string(100000, 'x')).size(), 200u);
}

TEST(RowCheck, EveryNumberHasItsRange) {
  for (const Column& column : columns()) {
    Row row = measured_row("naive", "fwd", 1000, 4096);
    const bool is_time = column.name.starts_with("time_us_");
    if (const auto* number = std::get_if<Number Row::*>(&column.field)) {
      row.*(*number) = -0.5;
    } else if (const auto* integer = std::get_if<Integer Row::*>(&column.field)) {
      row.*(*integer) = -1;
    } else {
      continue;
    }
    const std::string sentence = is_time ? "a time is above 0" : "cannot be below 0";
    if (column.name == "seed") {
      EXPECT_EQ(fault_of(row), "");
    } else {
      EXPECT_THAT(fault_of(row), HasSubstr("column " + std::string(column.name))) << column.name;
      EXPECT_THAT(fault_of(row), HasSubstr(sentence)) << column.name;
    }
  }
  EXPECT_THAT(fault_with<Number>(&Row::time_us_median, 0), HasSubstr("time_us_median is 0"));
  EXPECT_EQ(fault_with<Number>(&Row::err_rel_max, 0), "");
  EXPECT_THAT(fault_with<Integer>(&Row::causal, 2), HasSubstr("column causal is 2; it is 0 or 1"));
  EXPECT_THAT((fault_with<std::vector<double>>(&Row::sample_times_us, {1, 0})), HasSubstr("a sample is 0"));
}

TEST(RowCheck, ATimeIsThereExactlyWhenTheRowIsOk) {
  EXPECT_THAT(fault_with<Number>(&Row::time_us_median, {}), HasSubstr("ok and has no time_us_median"));
  Row verified = measured_row("naive", "fwd_bwd", 1000, 4096);
  verified.key = "verify/a.safetensors/naive:loops/fp32/cpu";
  verified.time_us_median.reset();
  EXPECT_EQ(fault_of(verified), "");
  EXPECT_THAT(fault_with<Text>(&Row::status, "incorrect"), HasSubstr("incorrect and has a time_us_median"));
}

TEST(RowCheck, AnImpossibleRowIsRefusedWithItsLine) {
  Row row = measured_row("naive", "bwd", 1000, 4096);
  row.status = "fantastic";
  const std::string whole = to_json_line(measured_row("naive", "fwd", 1000, 4096)) + "\n";
  const auto read = parse_rows(whole + to_json_line(row) + "\n", "in.jsonl");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, base::ErrorKind::kUnreadable);
  EXPECT_THAT(read.error().message, HasSubstr("in.jsonl: line 2: column status does not know"));
  const auto document = parse_rows("{\"rows\":[\n" + whole + ",\n" + to_json_line(row) + "\n]}", "in.json");
  ASSERT_FALSE(document);
  EXPECT_THAT(document.error().message, HasSubstr("in.json: line 4: column status does not know"));
}

}  // namespace
}  // namespace attnbench::reports
