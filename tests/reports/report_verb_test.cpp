#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "bench/base/error.hpp"
#include "bench/cli/verbs.hpp"
#include "reports/emit.hpp"
#include "reports/rows_io.hpp"
#include "reports/table.hpp"
#include "sample_rows.hpp"

namespace attnbench::cli {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ReportVerb : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/attnbench_report_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    std::ofstream rows(directory_ / "rows.jsonl");
    for (const reports::Row& row : reports::every_status().rows) rows << reports::to_json_line(row) << "\n";
    options_.input = directory_;
  }
  void TearDown() override { fs::remove_all(directory_); }

  int run() {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = report_verb(options_);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  fs::path directory_;
  ReportOptions options_;
  std::string out_, err_;
};

TEST_F(ReportVerb, PrintsTheTableAndTheSummary) {
  EXPECT_EQ(run(), base::exit_code::kOk);
  EXPECT_EQ(err_, "");
  EXPECT_THAT(out_, HasSubstr("flash:highway"));
  EXPECT_THAT(out_, HasSubstr("Speed-up over naive"));
}

TEST_F(ReportVerb, WritesEveryFormatThatIsAskedForAndThenNoTable) {
  options_.outputs.csv = directory_ / "run.csv";
  options_.outputs.json = directory_ / "run.json";
  options_.outputs.md = directory_ / "run.md";
  options_.outputs.gbench_json = "-";
  EXPECT_EQ(run(), base::exit_code::kOk);
  const reports::Document document = reports::every_status();
  EXPECT_EQ(out_, reports::emit_gbench(document, {}));
  EXPECT_EQ(reports::file_bytes(directory_ / "run.csv"), reports::emit_csv(document, {}));
  EXPECT_EQ(reports::file_bytes(directory_ / "run.json"), reports::emit_json(document, {}));
  EXPECT_EQ(reports::file_bytes(directory_ / "run.md"), reports::emit_md(document, {}));
}

TEST_F(ReportVerb, ABaselineIsOneOfTheRows) {
  options_.baseline = "flash:highway";
  EXPECT_EQ(run(), base::exit_code::kOk);
  EXPECT_THAT(out_, HasSubstr("Speed-up over flash:highway"));
  for (const auto& [word, hint] :
       {std::pair{"flahs", "did you mean \"flash\"?"}, std::pair{"flash:higway", "did you mean \"flash:highway\"?"},
        std::pair{"cudnn", "known: naive, flash, flash:highway, blas"}}) {
    options_.baseline = word;
    EXPECT_EQ(run(), base::exit_code::kUsage) << word;
    EXPECT_THAT(err_, HasSubstr(hint));
    EXPECT_EQ(out_, "");
  }
}

TEST_F(ReportVerb, ReadsWhatItWroteAsJson) {
  options_.outputs.json = directory_ / "run.json";
  EXPECT_EQ(run(), base::exit_code::kOk);
  options_ = {};
  options_.input = directory_ / "run.json";
  options_.outputs.csv = "-";
  EXPECT_EQ(run(), base::exit_code::kOk);
  EXPECT_EQ(out_, reports::emit_csv(reports::every_status(), {}));
}

TEST_F(ReportVerb, WarnsOfATornLineAndGoesOn) {
  std::ofstream(directory_ / "rows.jsonl", std::ios::app) << "{\"schema_version\":1,\"ker";
  EXPECT_EQ(run(), base::exit_code::kOk);
  EXPECT_THAT(err_, HasSubstr("warning: "));
  EXPECT_THAT(out_, HasSubstr("12 rows"));
}

TEST_F(ReportVerb, EndsWithFiveAndTheLineOnADamagedFile) {
  std::ofstream(directory_ / "rows.jsonl", std::ios::app) << "{]\n";
  EXPECT_EQ(run(), base::exit_code::kUnreadable);
  EXPECT_THAT(err_, HasSubstr("rows.jsonl: line 13: "));
  EXPECT_EQ(out_, "");
}

TEST_F(ReportVerb, EndsWithFiveWhenThereIsNothingToRead) {
  options_.input = directory_ / "elsewhere";
  EXPECT_EQ(run(), base::exit_code::kUnreadable);
  EXPECT_THAT(err_, HasSubstr("error: cannot read "));
}

TEST_F(ReportVerb, LetsOnlyOneFormatHaveStandardOutput) {
  options_.outputs.csv = options_.outputs.md = "-";
  EXPECT_EQ(run(), base::exit_code::kUsage);
}

TEST_F(ReportVerb, WritesOverNeitherItsInputNorAnotherReport) {
  const std::string before = reports::file_bytes(directory_ / "rows.jsonl");
  fs::create_symlink("rows.jsonl", directory_ / "link");
  for (const fs::path& path : {directory_ / "rows.jsonl", directory_ / "." / "rows.jsonl", directory_ / "link"}) {
    options_.outputs = {};
    options_.outputs.csv = path;
    EXPECT_EQ(run(), base::exit_code::kUsage) << path;
    EXPECT_THAT(err_, HasSubstr("over the rows"));
  }
  options_.outputs.csv = directory_ / "a";
  options_.outputs.md = directory_ / "." / "a";
  EXPECT_EQ(run(), base::exit_code::kUsage);
  EXPECT_THAT(err_, HasSubstr("both write to"));
  EXPECT_EQ(reports::file_bytes(directory_ / "rows.jsonl"), before);
}

TEST_F(ReportVerb, SaysWhenAFileCannotBeWritten) {
  options_.outputs.csv = directory_ / "none" / "run.csv";
  EXPECT_EQ(run(), base::exit_code::kRowFailed);
  EXPECT_THAT(err_, HasSubstr("none/run.csv"));
}

}  // namespace
}  // namespace attnbench::cli
