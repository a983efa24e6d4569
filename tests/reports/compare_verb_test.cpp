// `compare` from files to exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "bench/base/error.hpp"
#include "bench/base/stats.hpp"
#include "bench/cli/verbs.hpp"
#include "reports/rows_io.hpp"
#include "reports/self_test.hpp"
#include "sample_rows.hpp"

namespace attnbench::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class CompareVerb : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/attnbench_compare_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    options_.base = directory_ / "base";
    options_.next = directory_ / "new";
    write("base", run(1));
    write("new", run(1));
  }
  void TearDown() override { fs::remove_all(directory_); }

  /// The made-up run with every time `factor` times as long.
  static reports::Document run(double factor) {
    reports::Document document = reports::made_up_run();
    for (reports::Row& row : document.rows) {
      row.fingerprint = "0123";
      for (double& time : row.sample_times_us) time *= factor;
      row.time_us_median = base::median(row.sample_times_us);
    }
    return document;
  }

  void write(const std::string& folder, const reports::Document& document) {
    fs::create_directories(directory_ / folder);
    std::ofstream rows(directory_ / folder / "rows.jsonl");
    for (const reports::Row& row : document.rows) rows << reports::to_json_line(row) << "\n";
  }

  int compare() {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = compare_verb(options_);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  fs::path directory_;
  CompareOptions options_;
  std::string out_, err_;
};

TEST_F(CompareVerb, EqualRunsPassAndASlowerOneDoesNot) {
  EXPECT_EQ(compare(), base::exit_code::kOk);
  EXPECT_THAT(out_, HasSubstr("3 same"));
  EXPECT_EQ(err_, "");
  write("new", run(1.2));
  EXPECT_EQ(compare(), base::exit_code::kGateFailed);
  EXPECT_THAT(out_, HasSubstr("3 regressed"));
}

TEST_F(CompareVerb, RowsOfOneSideWarnAndFailUnderStrict) {
  reports::Document longer = run(1);
  longer.rows.push_back(longer.rows.back());
  longer.rows.back().key = "another";
  write("new", longer);
  EXPECT_EQ(compare(), base::exit_code::kOk);
  EXPECT_EQ(err_, "warning: 1 row is added; --strict would exit with 1\n");
  options_.comparing.strict = true;
  EXPECT_EQ(compare(), base::exit_code::kGateFailed);
  EXPECT_EQ(err_, "");
  std::swap(options_.base, options_.next);
  EXPECT_EQ(compare(), base::exit_code::kGateFailed);
  EXPECT_THAT(out_, HasSubstr("1 removed"));
}

TEST_F(CompareVerb, AnotherSetUpClosesTheGateUnlessItIsAllowed) {
  reports::Document other = run(1);
  for (reports::Row& row : other.rows) {
    row.power_limit_w = 500;
    row.fingerprint = "4567";
  }
  write("new", other);
  EXPECT_EQ(compare(), base::exit_code::kGateFailed);
  EXPECT_LT(out_.find("not comparable: power_limit_w differs: unknown before, 500 now"), out_.find("verdict"));
  EXPECT_THAT(err_, HasSubstr("--allow power_limit_w opens it"));
  options_.comparing.allowed = {"power_limit_w"};
  EXPECT_EQ(compare(), base::exit_code::kOk);
  EXPECT_THAT(out_, HasSubstr("note: power_limit_w differs"));
  for (reports::Row& row : other.rows) row.power_limit_w.reset();
  write("new", other);
  EXPECT_EQ(compare(), base::exit_code::kGateFailed);
  EXPECT_THAT(err_, HasSubstr("--allow fingerprint"));
  options_.comparing.allowed = {"all"};
  EXPECT_EQ(compare(), base::exit_code::kOk);
}

TEST_F(CompareVerb, NoiseFloorsComeFromAFile) {
  write("new", run(1.2));
  const fs::path file = directory_ / "noise.json";
  options_.comparing.noise_file = file;
  const auto floors = [&](const char* fingerprint, double percent) {
    std::ofstream out(file);
    out << R"({"attnbench_noise":1,"fingerprint":")" << fingerprint << R"(","rows":[)";
    const char* separator = "";
    for (const reports::Row& row : run(1).rows) {
      out << separator << R"({"key":")" << row.key << R"(","floor_pct":)" << percent << "}";
      separator = ",";
    }
    out << "]}";
  };
  floors("0123", 30);
  EXPECT_EQ(compare(), base::exit_code::kOk);
  EXPECT_EQ(err_, "");
  floors("elsewhere", 2);
  EXPECT_EQ(compare(), base::exit_code::kGateFailed);
  EXPECT_THAT(err_, HasSubstr("was measured on another machine"));
  std::ofstream(file) << "{";
  EXPECT_EQ(compare(), base::exit_code::kUnreadable);
}

TEST_F(CompareVerb, AFolderOfLaunchesIsOneSide) {
  for (const char* side : {"many", "slow"}) {
    for (int i = 1; i <= 5; ++i) {
      write(std::string(side) + "/launch-" + std::to_string(i),
            run((side == std::string("slow") ? 1.15 : 1) * (1 + 0.001 * i)));
    }
  }
  options_.base = directory_ / "many";
  options_.next = directory_ / "slow";
  EXPECT_EQ(compare(), base::exit_code::kGateFailed);
  EXPECT_THAT(out_, HasSubstr("3 regressed"));
  EXPECT_THAT(out_, HasSubstr("+15.0 %"));
  options_.next = directory_ / "many";
  EXPECT_EQ(compare(), base::exit_code::kOk);
  fs::create_directory(directory_ / "empty");
  options_.next = directory_ / "empty";
  EXPECT_EQ(compare(), base::exit_code::kUnreadable);
  EXPECT_THAT(err_, HasSubstr("holds no rows.jsonl and no folder that does"));
}

TEST_F(CompareVerb, WhatIsNoRunEndsWithFiveAndItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "there is no row"},
      {"\x89PNG\r\n", "line 1"},
      {"{]\n", "line 1"},
      {"{\"schema_version\":9,\"kernel\":\"a\",\"status\":\"ok\"}\n", "schema version 9"},
      {"{\"benchmarks\":[]}\n", "line 1"}};
  for (const auto& [bytes, message] : cases) {
    std::ofstream(directory_ / "new" / "rows.jsonl") << bytes;
    EXPECT_EQ(compare(), base::exit_code::kUnreadable) << bytes;
    EXPECT_THAT(err_, HasSubstr(message));
    EXPECT_EQ(out_, "");
  }
  // Rows of two schemas in one file.
  std::ofstream mixed(directory_ / "new" / "rows.jsonl");
  reports::Row row = run(1).rows.front();
  mixed << reports::to_json_line(row) << "\n";
  row.schema_version = 2;
  mixed << reports::to_json_line(row) << "\n";
  mixed.close();
  EXPECT_EQ(compare(), base::exit_code::kUnreadable);
  EXPECT_THAT(err_, HasSubstr("line 2: this has schema version 2"));
}

TEST_F(CompareVerb, RowsWithoutSamplesAreInconclusiveAndSayWhy) {
  reports::Document bare = run(1.5);
  for (reports::Row& row : bare.rows) row.sample_times_us.clear();
  write("new", bare);
  EXPECT_EQ(compare(), base::exit_code::kOk);
  EXPECT_THAT(out_, HasSubstr("no samples in the new run; name the folder of the run, for --json leaves them out"));
}

TEST_F(CompareVerb, WritesEveryFormatAndLeavesStandardOutputToOne) {
  write("new", run(1.2));
  options_.outputs.json = directory_ / "c.json";
  options_.outputs.emit = {
      {"junit", directory_ / "c.xml"}, {"step-summary", directory_ / "summary.md"}, {"annotations", "-"}};
  std::ofstream(directory_ / "summary.md") << "before\n";
  EXPECT_EQ(compare(), base::exit_code::kGateFailed);
  EXPECT_THAT(out_, HasSubstr("::error title=attnbench regressed::made_up/100us: time_us_median regressed, +20.0 %25"));
  EXPECT_THAT(out_, Not(HasSubstr("verdict")));
  EXPECT_THAT(err_, HasSubstr("verdict"));
  EXPECT_THAT(reports::file_bytes(directory_ / "c.json"), HasSubstr(R"("counts":{"regressed":3})"));
  EXPECT_THAT(reports::file_bytes(directory_ / "c.xml"), HasSubstr(R"(failures="3")"));
  EXPECT_THAT(reports::file_bytes(directory_ / "summary.md"), HasSubstr("before\n## 3 regressed"));
  options_.outputs.emit = {{"codspeed", directory_ / "x"}};
  EXPECT_EQ(compare(), base::exit_code::kUsage);
  EXPECT_THAT(err_, HasSubstr("compare has no format \"codspeed\""));
  options_.outputs.emit = {{"md", directory_ / "base" / "rows.jsonl"}};
  EXPECT_EQ(compare(), base::exit_code::kUsage);
  EXPECT_THAT(err_, HasSubstr("over the rows"));
}

TEST_F(CompareVerb, TheSelfTestPlantsChangesIntoARunOrAMadeUpOne) {
  options_.comparing.self_test = true;
  options_.next.clear();
  EXPECT_EQ(compare(), base::exit_code::kOk);
  EXPECT_THAT(out_, HasSubstr("passed  time_us_median made 10 % worse: 3 of 3 rows regressed"));
  options_.base.clear();
  EXPECT_EQ(compare(), base::exit_code::kOk);
  EXPECT_THAT(out_, HasSubstr("made-up run"));
  reports::Document short_run = run(1);
  for (reports::Row& row : short_run.rows) row.sample_times_us.resize(2);
  write("base", short_run);
  options_.base = directory_ / "base";
  EXPECT_EQ(compare(), base::exit_code::kGateFailed);
  EXPECT_THAT(out_, HasSubstr("FAILED"));
}

}  // namespace
}  // namespace attnbench::cli
