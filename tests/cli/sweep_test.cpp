// `attnbench sweep` end to end on the mock device, whose times and sizes are declared: every status, exact numbers,
// resuming, and what is left after a signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "reports/rows_io.hpp"
#include "tests/cli/program.hpp"

namespace attnbench::tests {
namespace {

using reports::Row;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const char* const kSmall = " --seq-len 64 --d-model 16 --batch 1 --causal off --pass fwd ";

class Sweep : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    out_ = testing::TempDir() + "attnbench_sweep_" + std::to_string(getpid()) + "_" + info->name();
    std::filesystem::remove_all(out_);
  }
  void TearDown() override { std::filesystem::remove_all(out_); }

  Outcome sweep(const std::string& arguments) const { return run_program("sweep --out " + out_ + " " + arguments); }

  std::string rows_path() const { return out_ + "/rows.jsonl"; }

  std::string text() const {
    std::ifstream file(rows_path());
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }

  std::size_t lines() const {
    const std::string all = text();
    return static_cast<std::size_t>(std::count(all.begin(), all.end(), '\n'));
  }

  std::vector<Row> rows() const {
    auto document = reports::load_rows(rows_path());
    EXPECT_TRUE(document.has_value()) << (document ? "" : document.error().message);
    return document ? document->rows : std::vector<Row>{};
  }

  /// By kernel; for sweeps of one problem.
  std::map<std::string, Row> by_kernel() const {
    std::map<std::string, Row> result;
    for (const Row& row : rows()) result[row.kernel] = row;
    return result;
  }

  std::string out_;
};

TEST_F(Sweep, ARowOfARightKernelHasItsDeclaredTimeAndTheRatesThatFollow) {
  const Outcome outcome = sweep("--device mock --kernels flash" + std::string(kSmall));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(rows().size(), 1u);
  const Row row = rows().front();
  EXPECT_EQ(row.status, "ok");
  EXPECT_EQ(row.timing, "declared");
  // 10 us and 64 * 64 * 16 products at 4e5 per us; a cold sample takes a tenth more.
  const double time_us = (10 + 64 * 64 * 16 / 4e5) * 1.1;
  EXPECT_NEAR(*row.time_us_median, time_us, 1e-9);
  EXPECT_NEAR(*row.time_us_min, time_us * 0.98, 1e-9);
  EXPECT_NEAR(*row.time_us_max, time_us * 1.02, 1e-9);
  EXPECT_NEAR(*row.tflops, 4.0 * 64 * 64 * 16 / time_us * 1e-6, 1e-12);
  const double bytes = 4.0 * 64 * 16 * 4 + 64 * 4;
  EXPECT_NEAR(*row.gbps, bytes / time_us * 1e-3, 1e-9);
  EXPECT_EQ(row.peak_bytes, static_cast<std::int64_t>(bytes));
  EXPECT_EQ(row.predicted_bytes, row.peak_bytes);
  EXPECT_LE(*row.err_rel_max, *row.err_tolerance);
  EXPECT_EQ(row.checked_rows, 64);
  EXPECT_EQ(row.seed, 1);
  EXPECT_THAT(row.command, HasSubstr("sweep"));
  for (const std::string* text :
       {&row.host, &row.os, &row.compiler, &row.flags, &row.fingerprint, &row.time_utc, &row.run_id, &row.version}) {
    EXPECT_THAT(*text, Not(IsEmpty()));
  }
}

TEST_F(Sweep, EveryFateOfAKernelIsARowAndTheSweepGoesOn) {
  const Outcome outcome =
      sweep("--device mock --kernels incorrect,unsupported,oom,failed,slow,naive,blas,flash --time-limit 10ms" +
            std::string(kSmall));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  auto row = by_kernel();
  ASSERT_EQ(row.size(), 8u);
  for (const char* right : {"naive", "blas", "flash"}) EXPECT_EQ(row[right].status, "ok") << row[right].reason;
  EXPECT_EQ(row["incorrect"].status, "incorrect");
  EXPECT_EQ(row["incorrect"].err_tensor, "o");
  EXPECT_GT(*row["incorrect"].err_abs_max, 0.9);
  EXPECT_FALSE(row["incorrect"].time_us_median.has_value());
  EXPECT_EQ(row["unsupported"].status, "unsupported");
  EXPECT_THAT(row["unsupported"].reason, HasSubstr("declines every problem"));
  EXPECT_EQ(row["oom"].status, "oom");
  EXPECT_EQ(row["failed"].status, "failed");
  EXPECT_THAT(row["failed"].reason, HasSubstr("told to fail"));
  EXPECT_EQ(row["slow"].status, "timeout");
  EXPECT_EQ(row["slow"].samples, 2);
  EXPECT_FALSE(row["slow"].time_us_median.has_value());
  for (const char* kernel : {"incorrect", "oom", "flash"}) EXPECT_THAT(outcome.out, HasSubstr(kernel));
}

TEST_F(Sweep, KernelsOfAPointAreSampledInTurnAndTheirMemoryIsCountedApart) {
  EXPECT_EQ(sweep("--device mock --kernels naive,flash" + std::string(kSmall)).code, 0);
  auto row = by_kernel();
  EXPECT_EQ(row["naive"].interleaved, 2);
  EXPECT_EQ(row["flash"].interleaved, 2);
  EXPECT_EQ(*row["naive"].peak_bytes - *row["flash"].peak_bytes, 64 * 64 * 4);  // the scores
  EXPECT_EQ(row["naive"].workspace_bytes, 0);  // the forward keeps them, as saved state
}

TEST_F(Sweep, WhatWouldNotFitIsNotTried) {
  const Outcome outcome = sweep("--device mock --kernels naive --seq-len 64k --d-model 16 --batch 8 --pass fwd");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows().front().status, "oom_predicted");
  EXPECT_GT(*rows().front().predicted_bytes, std::int64_t{8} * 65536 * 65536 * 4);
  EXPECT_FALSE(rows().front().peak_bytes.has_value());
}

TEST_F(Sweep, ALostDeviceEndsItsPointsWithAHint) {
  const Outcome outcome = sweep("--device mock --kernels lost,flash --seq-len 32,64 --d-model 16 --batch 1 --pass fwd");
  EXPECT_EQ(outcome.code, 3);
  ASSERT_EQ(rows().size(), 4u);
  for (const Row& row : rows()) EXPECT_EQ(row.status, "device_lost");
  EXPECT_THAT(rows().back().reason, HasSubstr("--resume"));
}

TEST_F(Sweep, TheBackwardReadsWhatTheKernelsOwnForwardLeft) {
  EXPECT_EQ(sweep("--device mock --kernels naive,flash --pass bwd,fwd_bwd --seq-len 48 --d-model 16 --batch 1").code,
            0);
  ASSERT_EQ(rows().size(), 4u);
  for (const Row& row : rows()) EXPECT_EQ(row.status, "ok") << row.reason;
}

TEST_F(Sweep, LargeLogitsWidenTheToleranceByWhatFp32CannotHold) {
  const std::string point =
      "--device cpu --kernels naive,flash --seq-len 256 --d-model 64 --batch 1 --cache hot --max-samples 3 ";
  EXPECT_EQ(sweep(point + "--scale 20").code, 0);
  ASSERT_EQ(rows().size(), 4u);
  for (const Row& row : rows()) {
    EXPECT_EQ(row.status, "ok") << row.reason;
    EXPECT_GT(*row.err_tolerance, 2e-5);  // logits reach hundreds
    EXPECT_LT(*row.err_tolerance, 2e-3);
  }
}

TEST_F(Sweep, TheCustomaryScaleKeepsTheKernelsOwnTolerance) {
  EXPECT_EQ(sweep("--device cpu --kernels naive --seq-len 256 --d-model 64 --batch 1 --cache hot --max-samples 3").code,
            0);
  for (const Row& row : rows()) EXPECT_EQ(row.err_tolerance, 2e-5);
}

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
  EXPECT_THAT(outcome.err, HasSubstr("torn"));
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

TEST_F(Sweep, EveryReportCanBeWrittenAtTheEnd) {
  std::filesystem::create_directories(out_);
  const Outcome outcome =
      run_program("sweep --out " + out_ + "/run --device mock --kernels naive,flash --quiet --csv " + out_ +
                  "/a.csv --md " + out_ + "/a.md --gbench-json " + out_ + "/a.gb.json --json -" + kSmall);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\"time_us_median\""));
  for (const char* name : {"/a.csv", "/a.md", "/a.gb.json"}) {
    EXPECT_GT(std::filesystem::file_size(out_ + name), 100u) << name;
  }
}

/// A plan of two rows: one that is done at once, and one that goes on for minutes unless something ends it.
const std::vector<std::string> kDoneAndEndless{"--device",      "mock",
                                               "--kernels",     "flash,sleepy",
                                               "--exclude",     "kernel=sleepy,seq_len=32;kernel=flash,seq_len=64",
                                               "--seq-len",     "32,64",
                                               "--d-model",     "16",
                                               "--batch",       "1",
                                               "--pass",        "fwd",
                                               "--max-noise",   "0.0001",
                                               "--time-limit",  "5min",
                                               "--max-samples", "1000000"};

/// Sends the signal while the second row is being sampled, and gives the exit code.
int interrupt_with(int signal, const std::string& out) {
  std::vector<std::string> arguments{"sweep", "--out", out};
  arguments.insert(arguments.end(), kDoneAndEndless.begin(), kDoneAndEndless.end());
  Started program(arguments, out + ".txt");
  const auto has_row = [&] {
    std::ifstream file(out + "/rows.jsonl");
    std::string line;
    return static_cast<bool>(std::getline(file, line)) && !file.eof();
  };
  EXPECT_TRUE(program.wait_until(has_row)) << program.output();
  EXPECT_TRUE(program.wait_for_sleeps(50)) << program.output();
  program.send(signal);
  return program.wait();
}

void expect_one_done_and_one_interrupted(const std::vector<Row>& all) {
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].kernel, "flash");
  EXPECT_EQ(all[0].status, "ok") << all[0].reason;
  EXPECT_EQ(all[1].kernel, "sleepy");
  EXPECT_EQ(all[1].status, "interrupted") << all[1].reason;
  EXPECT_GT(*all[1].samples, 0);
  EXPECT_FALSE(all[1].time_us_median.has_value());
  EXPECT_THAT(all[1].reason, HasSubstr("--resume"));
}

TEST_F(Sweep, CtrlCKeepsWhatIsDoneAndSaysHowToGoOn) {
  EXPECT_EQ(interrupt_with(SIGINT, out_), 130);
  expect_one_done_and_one_interrupted(rows());
}

TEST_F(Sweep, SigtermDoesTheSameWithItsOwnCode) {
  EXPECT_EQ(interrupt_with(SIGTERM, out_), 143);
  expect_one_done_and_one_interrupted(rows());
}

TEST_F(Sweep, AKillLosesThePointInFlightAlone) {
  ASSERT_EQ(interrupt_with(SIGKILL, out_), 1000 + SIGKILL);
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows().front().kernel, "flash");
  const std::string first = rows().front().run_id;
  const Outcome outcome = sweep(
      "--resume --device mock --kernels flash,sleepy --exclude 'kernel=sleepy,seq_len=32;kernel=flash,seq_len=64' "
      "--seq-len 32,64 --d-model 16 --batch 1 --pass fwd --max-samples 3");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(rows().size(), 2u);
  EXPECT_EQ(rows()[0].run_id, first);
  EXPECT_EQ(rows()[1].kernel, "sleepy");
  EXPECT_EQ(rows()[1].status, "ok") << rows()[1].reason;
}

TEST_F(Sweep, TheTimeLimitOfTheRunEndsIt) {
  const Outcome outcome = sweep(
      "--device mock --kernels sleepy --seq-len 64 --d-model 16 --batch 1 --pass fwd --max-noise 0.0001 "
      "--time-limit 5min --max-samples 1000000 --run-limit 2s");
  EXPECT_EQ(outcome.code, 124) << outcome.err;
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows().front().status, "interrupted");
  EXPECT_THAT(rows().front().reason, HasSubstr("the time limit of the run"));
}

}  // namespace
}  // namespace attnbench::tests
