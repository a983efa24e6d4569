// `attnbench sweep --resume`: what it keeps, what it runs again, and what it refuses before it changes anything.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "tests/cli/sweep_case.hpp"

namespace attnbench::tests {
namespace {

using testing::HasSubstr;

TEST_F(Sweep, DoesNotWriteOverAnEarlierSweep) {
  EXPECT_EQ(sweep("--device mock --kernels flash" + std::string(kSmall)).code, 0);
  const std::string before = text();
  const Outcome again = sweep("--device mock --kernels flash" + std::string(kSmall));
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("--resume"));
  EXPECT_EQ(text(), before);
}

TEST_F(Sweep, ResumePassesOverWhatIsDoneAndRunsTheRest) {
  EXPECT_EQ(sweep("--device mock --kernels naive,failed" + std::string(kSmall)).code, 3);
  const std::string first = text();
  const Outcome outcome = sweep("--resume --device mock --kernels naive,failed,flash" + std::string(kSmall));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(text().substr(0, first.size()), first);
  EXPECT_EQ(lines(), 4u);  // naive is not run again, failed is
  auto row = by_kernel();
  EXPECT_EQ(row["flash"].status, "ok");
  EXPECT_NE(row["failed"].run_id, row["naive"].run_id);
}

TEST_F(Sweep, ResumeCutsATornLastLine) {
  EXPECT_EQ(sweep("--device mock --kernels naive" + std::string(kSmall)).code, 0);
  std::ofstream(rows_path(), std::ios::app) << "{\"schema_version\":1,\"key\":\"fla";
  const Outcome outcome = sweep("--resume --device mock --kernels naive,flash" + std::string(kSmall));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("torn line was cut"));
  EXPECT_EQ(lines(), 2u);
  EXPECT_EQ(rows().size(), 2u);
}

TEST_F(Sweep, ResumeRefusesAnotherMachine) {
  EXPECT_EQ(sweep("--device mock --kernels naive" + std::string(kSmall)).code, 0);
  const std::string fingerprint = rows().front().fingerprint;
  std::string changed = text();
  changed.replace(changed.find(fingerprint), fingerprint.size(), "0123456789abcdef");
  std::ofstream(rows_path()) << changed;
  const Outcome outcome = sweep("--resume --device mock --kernels naive,flash" + std::string(kSmall));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("0123456789abcdef"));
  EXPECT_THAT(outcome.err, HasSubstr(fingerprint));
  EXPECT_EQ(text(), changed);
}

TEST_F(Sweep, TryOomRunsWhatWasPredictedNotToFitAndReportsTheFailure) {
  const std::string point = "--device mock --kernels naive --seq-len 64k --d-model 4 --batch 2 --pass fwd ";
  EXPECT_EQ(sweep(point).code, 0);
  EXPECT_EQ(rows().front().status, "oom_predicted");
  const Outcome outcome = sweep("--resume --try-oom " + point);
  EXPECT_EQ(outcome.code, 0) << outcome.err;  // a sweep that reports where memory ends did what it was asked
  EXPECT_EQ(lines(), 2u);
  ASSERT_EQ(rows().size(), 1u);  // the later of equal keys
  EXPECT_EQ(rows().front().status, "oom");
  EXPECT_THAT(rows().front().reason, HasSubstr("free"));
}

/// Runs a small sweep, appends to its rows, and resumes it with one more kernel.
class ResumeOfDamage : public Sweep {
 protected:
  Outcome resume_after(const std::string& damage) {
    EXPECT_EQ(sweep("--device mock --kernels naive" + std::string(kSmall)).code, 0);
    std::ofstream(rows_path(), std::ios::app) << damage;
    before_ = text();
    return sweep("--resume --device mock --kernels naive,flash" + std::string(kSmall));
  }

  std::string before_;
};

TEST_F(ResumeOfDamage, WhatReportRefusesResumeRefusesToo) {
  const std::string torn = "{\"schema_version\":1,\"key\":\"fla";
  for (const std::string& damage : {torn + "\n", torn + "\r\n", std::string("{]"), std::string("{\"a\":1}")}) {
    std::filesystem::remove_all(out_);
    const Outcome resumed = resume_after(damage);
    EXPECT_EQ(resumed.code, 5) << damage;
    EXPECT_THAT(resumed.err, HasSubstr("line 2: ")) << damage;
    EXPECT_EQ(text(), before_) << damage;
    const Outcome report = run_program("report " + out_);
    EXPECT_EQ(report.code, 5) << damage;
    EXPECT_THAT(report.err, HasSubstr("line 2: ")) << damage;
  }
}

TEST_F(ResumeOfDamage, ALastRowWithoutItsNewlineIsKept) {
  EXPECT_EQ(sweep("--device mock --kernels naive" + std::string(kSmall)).code, 0);
  std::string whole = text();
  whole.pop_back();
  std::ofstream(rows_path()) << whole;
  EXPECT_EQ(sweep("--resume --device mock --kernels naive,flash" + std::string(kSmall)).code, 0);
  EXPECT_EQ(text().substr(0, whole.size() + 1), whole + "\n");
  EXPECT_EQ(rows().size(), 2u);
}

TEST_F(ResumeOfDamage, AFileOfATornFirstRowAloneIsBegunAgain) {
  EXPECT_EQ(sweep("--device mock --kernels naive" + std::string(kSmall)).code, 0);
  std::ofstream(rows_path()) << text().substr(0, 100);
  EXPECT_EQ(sweep("--resume --device mock --kernels naive" + std::string(kSmall)).code, 0);
  EXPECT_EQ(rows().size(), 1u);
}

TEST_F(Sweep, ResumeRefusesOtherSettingsAndNamesThem) {
  const std::string plan = "--device mock --kernels naive,flash --max-samples 5 --min-time 0s" + std::string(kSmall);
  EXPECT_EQ(sweep(plan + "--seed 1").code, 0);
  const std::string before = text();
  EXPECT_THAT(before, HasSubstr("--max-samples 5"));
  const auto refused = [&](const std::string& arguments, const std::string& was, const std::string& is) {
    const Outcome outcome = sweep("--resume " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("were made with " + was + ", this run has " + is + "; type " + was));
    EXPECT_EQ(text(), before);
  };
  refused(plan + "--seed 2", "--seed 1", "--seed 2");
  refused(plan + "--max-samples 7", "--max-samples 5", "--max-samples 7");
  refused(plan + "--thermal sustained", "--thermal burst", "--thermal sustained");
  refused(plan + "--timing declared --time-limit 1s", "--time-limit 3s --timing auto",
          "--time-limit 1s --timing declared");
  EXPECT_EQ(sweep("--resume " + plan).code, 0);
  EXPECT_EQ(sweep("--resume --baseline flash --quiet " + plan).code, 0);  // of the table alone
  EXPECT_EQ(text(), before);
}

TEST_F(Sweep, WhatRunsAgainMayHaveAnotherRule) {
  const std::string plan = "--device mock --kernels slow" + std::string(kSmall);
  EXPECT_EQ(sweep("--time-limit 1ms " + plan).code, 3);
  EXPECT_EQ(rows().front().status, "timeout");
  EXPECT_EQ(sweep("--resume --time-limit 30s " + plan).code, 0);
  EXPECT_EQ(rows().front().status, "ok");
}

TEST_F(Sweep, TheLargestSeedIsInTheRow) {
  EXPECT_EQ(sweep("--device mock --kernels flash --seed 9223372036854775807" + std::string(kSmall)).code, 0);
  EXPECT_EQ(rows().front().seed, INT64_MAX);
}

/// A sweep that is at work on a row of many minutes, its first row done.
class Busy : public Sweep {
 protected:
  void start() {
    program_ = std::make_unique<Started>(std::vector<std::string>{"sweep",
                                                                  "--out",
                                                                  out_,
                                                                  "--device",
                                                                  "mock",
                                                                  "--kernels",
                                                                  "flash,sleepy",
                                                                  "--exclude",
                                                                  "kernel=sleepy,seq_len=32;kernel=flash,seq_len=64",
                                                                  "--seq-len",
                                                                  "32,64",
                                                                  "--d-model",
                                                                  "16",
                                                                  "--batch",
                                                                  "1",
                                                                  "--pass",
                                                                  "fwd",
                                                                  "--max-noise",
                                                                  "0.0001",
                                                                  "--time-limit",
                                                                  "5min",
                                                                  "--max-samples",
                                                                  "1000000"},
                                         out_ + ".txt");
    EXPECT_TRUE(program_->wait_until([&] { return lines() == 1; })) << program_->output();
    EXPECT_TRUE(program_->wait_for_sleeps(5)) << program_->output();
  }

  std::unique_ptr<Started> program_;
};

TEST_F(Busy, ASecondRunInTheFolderIsRefused) {
  start();
  const Outcome second = sweep("--resume --device mock --kernels flash" + std::string(kSmall));
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("another run is writing to " + rows_path()));
  program_->send(SIGTERM);
  EXPECT_EQ(program_->wait(), 143);
  EXPECT_EQ(lines(), 2u);
}

TEST_F(Busy, RowsThatCannotBeReadBackAreNotPassedOverInSilence) {
  start();
  std::ofstream(rows_path(), std::ios::app) << "garbage\n";
  program_->send(SIGTERM);
  EXPECT_EQ(program_->wait(), 143);
  EXPECT_THAT(program_->output(), HasSubstr("line 2: this is not JSON"));
}

TEST_F(Sweep, TwoRunsThatStartTogetherGetAFolderEach) {
  std::filesystem::create_directories(out_);
  const std::string one = std::string(ATTNBENCH_PROGRAM) + " sweep --quiet --device mock --kernels flash" + kSmall;
  // Four at once, where the second of the clock names the folder.
  const std::string command = "cd " + out_ + " && for i in 1 2 3 4; do " + one + " & done; wait";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(out_ + "/attnbench-out")) {
    ++folders;
    const auto document = reports::load_rows(entry.path().string());
    ASSERT_TRUE(document) << document.error().message;
    EXPECT_EQ(document->rows.size(), 1u);
  }
  EXPECT_EQ(folders, 4u);
}

}  // namespace
}  // namespace attnbench::tests
