// What the program does where a standard stream is closed, full or gone: rows stay whole, and nobody is told that what
// was not written is fine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "reports/rows_io.hpp"
#include "tests/cli/program.hpp"

namespace attnbench::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kPlan =
    "sweep --device mock --kernels naive,flash --seq-len 32,64 --d-model 16 --batch 1 --pass fwd --max-samples 3 ";

// run_program gives standard error a file of its own; what redirects it ends the command before that.

class Streams : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(out_); }
  void TearDown() override { std::filesystem::remove_all(out_); }

  void expect_whole_rows() const {
    const auto document = reports::load_rows(out_);
    ASSERT_TRUE(document) << document.error().message;
    EXPECT_EQ(document->rows.size(), 4u);
    EXPECT_TRUE(document->warnings.empty());
    std::ifstream file(out_ + "/rows.jsonl");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
    EXPECT_THAT(text, Not(HasSubstr("kernel ")));  // the head of the table
  }

  std::string out_ = testing::TempDir() + "attnbench_streams_" + std::to_string(getpid()) + "_" +
                     testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Streams, AClosedOutputStaysOutOfTheRows) {
  EXPECT_EQ(run_program(kPlan + "--out " + out_ + " >&-").code, 3);  // the table was asked for and did not get out
  expect_whole_rows();
}

TEST_F(Streams, AClosedOutputIsEnoughForWhoAsksForNothing) {
  EXPECT_EQ(run_program(kPlan + "--quiet --out " + out_ + " >&-").code, 0);
  expect_whole_rows();
}

TEST_F(Streams, AReportToAClosedOutputIsAnError) {
  EXPECT_EQ(run_program(kPlan + "--json - --out " + out_ + " >&-").code, 3);
  expect_whole_rows();
}

TEST_F(Streams, AllThreeMayBeClosed) {
  const Outcome outcome = run_program(kPlan + "--out " + out_ + " >&- 2>&- <&-; exit $?; :");
  EXPECT_EQ(outcome.code, 3);
  expect_whole_rows();
}

TEST_F(Streams, AFullDiskUnderTheTableDoesNotEndTheSweep) {
  EXPECT_EQ(run_program(kPlan + "--out " + out_ + " >/dev/full 2>/dev/full; exit $?; :").code, 3);
  expect_whole_rows();
}

TEST_F(Streams, WhatIsPrintedToAFullDiskIsNoSuccess) {
  // More than one buffer full among them: the last flush alone would not see the first that failed.
  for (const char* arguments :
       {"sweep --dry-run --device mock --seq-len 1:64", "sweep --dry-run --device mock", "--help", "sweep --help",
        "--version", "list columns", "list kernels --device cpu", "explain tflops", "doctor",
        "gbench --device mock --seq-len 64 --d-model 16 --batch 1 --kernels flash"}) {
    const Outcome outcome = run_program(std::string(arguments) + " >/dev/full");
    EXPECT_EQ(outcome.code, 3) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("standard output could not be written")) << arguments;
  }
}

}  // namespace
}  // namespace attnbench::tests
