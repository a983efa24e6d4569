// `attnbench sweep` end to end on the mock device, whose times and sizes are declared: every status, exact numbers, and
// what is left after a signal.
#include <chrono>
#include <csignal>

#include "tests/cli/sweep_case.hpp"

namespace attnbench::tests {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

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
  EXPECT_EQ(row.interleaved, 1);            // itself
  EXPECT_FALSE(row.throttled.has_value());  // nothing here can tell
  EXPECT_FALSE(row.timer_overhead_us.has_value());
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
  EXPECT_EQ(row["slow"].samples, 1);  // a minute is past ten limits
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

TEST_F(Sweep, SustainedKeepsTheDeviceBusyBeforeTheFirstSample) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(sweep("--device cpu --threads 1 --kernels naive --thermal sustained --max-samples 3 --cache hot" +
                  std::string(kSmall))
                .code,
            0);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_THAT(rows().front().note, HasSubstr("launched for 5 s before the first sample"));
  EXPECT_THAT(rows().front().sampling, HasSubstr("--thermal sustained"));
  EXPECT_EQ(rows().front().samples, 3);
  std::filesystem::remove_all(out_);
  EXPECT_EQ(sweep("--device mock --kernels naive" + std::string(kSmall)).code, 0);
  EXPECT_EQ(rows().front().note, "");
}

TEST_F(Sweep, TheBaselineCanBeAVariant) {
  const Outcome outcome = sweep("--device mock --kernels naive,flash --baseline flash:mock" + std::string(kSmall));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Speed-up over flash:mock"));
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
    if (row.err_tensor == "lse") continue;
    EXPECT_GT(*row.err_tolerance, 2e-5);  // logits reach hundreds
    EXPECT_LE(*row.err_tolerance, 1e-3);
  }
}

TEST_F(Sweep, AWrongResultIsIncorrectHoweverLargeTheLogits) {
  EXPECT_EQ(sweep("--device mock --kernels incorrect --scale 1e5 --seq-len 16 --d-model 16 --batch 1 --pass fwd").code,
            3);
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows()[0].status, "incorrect");
  EXPECT_LE(*rows()[0].err_tolerance, 1e-3);
}

TEST_F(Sweep, HugeLogitsAreRightInEveryKernelToTheLastDigits) {
  EXPECT_EQ(sweep("--device cpu --scale 1e6 --seq-len 64,200 --d-model 64 --batch 1 --cache hot --max-samples 3").code,
            0);
  ASSERT_EQ(rows().size(), 12u);
  for (const Row& row : rows()) {
    EXPECT_EQ(row.status, "ok") << row.reason;
    EXPECT_LT(*row.err_rel_max, 2e-6) << row.key;
  }
}

TEST_F(Sweep, AResultThatIsNotFiniteHasNoError) {
  // Gradients near the end of fp32: sums on the way to them pass it.
  EXPECT_EQ(sweep("--device cpu --kernels naive --scale 1e38 --seq-len 64 --d-model 16 --batch 1 --pass bwd").code, 3);
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows()[0].status, "incorrect");
  EXPECT_FALSE(rows()[0].err_rel_max.has_value());
  EXPECT_FALSE(rows()[0].err_abs_max.has_value());
  EXPECT_THAT(rows()[0].reason, HasSubstr("no error can be computed"));
}

TEST_F(Sweep, WhatFlashCannotHoldItDeclinesByName) {
  EXPECT_EQ(sweep("--device cpu --kernels flash --scale 1e31 --seq-len 64 --d-model 16,257 --batch 1 --pass fwd").code,
            0);
  ASSERT_EQ(rows().size(), 2u);
  for (const Row& row : rows()) EXPECT_EQ(row.status, "unsupported");
  EXPECT_THAT(rows()[0].reason, HasSubstr("1.2e30; try --kernels naive"));
  EXPECT_THAT(rows()[1].reason, HasSubstr("head_dim 257 is above 256"));
  EXPECT_THAT(rows()[1].reason, Not(HasSubstr("--kernels")));  // no other kernel takes it either
}

TEST_F(Sweep, EmptySequencesAndBatchesRun) {
  const std::string rest =
      " --device cpu --d-model 16 --pass fwd,bwd,fwd_bwd --cache hot --max-samples 3 --causal on,off";
  EXPECT_EQ(sweep("--seq-len 0,5 --seq-len-k 0,5 --batch 0,2 --dtype fp32,bf16" + rest).code, 0);
  ASSERT_EQ(rows().size(), 2u * 2 * 2 * 2 * 3 * 2 * 3);
  for (const Row& row : rows()) EXPECT_EQ(row.status, "ok") << row.key << ": " << row.reason;
  EXPECT_EQ(run_program("report " + out_).code, 0);
}

TEST_F(Sweep, APointBeyondAllCountingIsNotTried) {
  const Outcome outcome = sweep(
      "--device cpu --batch 2^24 --heads 2^20 --d-model 2^24 --seq-len 2^20 --kernels naive,flash --pass fwd "
      "--try-oom");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(rows().size(), 2u);
  for (const Row& row : rows()) {
    EXPECT_EQ(row.status, "oom_predicted");
    EXPECT_FALSE(row.predicted_bytes.has_value());
    EXPECT_THAT(row.reason, HasSubstr("EiB"));
  }
}

TEST_F(Sweep, AShortTimeLimitStillGivesTheFirstRowItsSamples) {
  EXPECT_EQ(sweep("--device cpu --seq-len 32 --d-model 16 --batch 1 --kernels naive --time-limit 50ms").code, 0);
  for (const Row& row : rows()) {
    EXPECT_EQ(row.status, "ok") << row.reason;
    EXPECT_GE(*row.samples, 3);
  }
}

TEST_F(Sweep, TheCustomaryScaleKeepsTheKernelsOwnTolerance) {
  EXPECT_EQ(sweep("--device cpu --kernels naive --seq-len 256 --d-model 64 --batch 1 --cache hot --max-samples 3").code,
            0);
  for (const Row& row : rows()) EXPECT_EQ(row.err_tolerance, 2e-5);
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

TEST_F(Sweep, TheFlushBufferIsInTheResidentMemoryOfTheFirstRowToo) {
  EXPECT_EQ(
      sweep("--device cpu --kernels flash --seq-len 32,64 --d-model 16 --batch 1 --pass fwd --max-samples 3").code, 0);
  ASSERT_EQ(rows().size(), 2u);
  for (const Row& row : rows()) {
    if (!row.peak_rss_bytes) GTEST_SKIP() << "the system does not tell the resident memory";
    EXPECT_GE(*row.peak_rss_bytes, *row.flush_bytes) << row.key;
  }
}

TEST_F(Sweep, AReportThatCannotBeWrittenIsSaidBeforeAnythingRuns) {
  std::filesystem::create_directories(out_);
  for (const char* option : {"--csv", "--json", "--md", "--gbench-json"}) {
    for (const std::string& path : {out_ + "/nowhere/a", out_}) {
      const Outcome outcome =
          run_program("sweep --out " + out_ + "/run --device mock --kernels flash " + option + " " + path + kSmall);
      EXPECT_EQ(outcome.code, 3);
      EXPECT_THAT(outcome.err, HasSubstr("cannot write " + path));
      EXPECT_EQ(outcome.out, "");
      EXPECT_FALSE(std::filesystem::exists(out_ + "/run")) << "the same command can be typed again, corrected";
    }
  }
  for (const std::string& folder : {out_ + "/run", out_ + "/other/"}) {  // which the sweep makes
    const Outcome outcome =
        run_program("sweep --out " + folder + " --device mock --kernels flash --csv " + folder + "/a.csv" + kSmall);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_GT(std::filesystem::file_size(folder + "/a.csv"), 100u);
  }
}

/// A plan of two rows: one that is done at once, and one that goes on for minutes unless something ends it.
const std::vector<std::string> kDoneAndEndless{
    "--device",     "mock",         "--kernels",
    "flash,sleepy", "--exclude",    "kernel=sleepy,seq_len=32;kernel=flash,seq_len=64",
    "--seq-len",    "32,64",        "--d-model",
    "16",           "--batch",      "1",
    "--pass",       "fwd",          "--max-noise",
    "0.0001",       "--time-limit", "5min"};

/// Sends the signal (and another one after it) while the second row is being sampled, and gives the exit code.
int interrupt_with(int signal, const std::string& out, int then = 0, const std::string& most_samples = "1000000") {
  std::vector<std::string> arguments{"sweep", "--out", out};
  arguments.insert(arguments.end(), kDoneAndEndless.begin(), kDoneAndEndless.end());
  arguments.insert(arguments.end(), {"--max-samples", most_samples});
  Started program(arguments, out + ".txt");
  const auto has_row = [&] {
    std::ifstream file(out + "/rows.jsonl");
    std::string line;
    return static_cast<bool>(std::getline(file, line)) && !file.eof();
  };
  EXPECT_TRUE(program.wait_until(has_row)) << program.output();
  EXPECT_TRUE(program.wait_for_sleeps(50)) << program.output();
  program.send(signal);
  if (then != 0) {
    EXPECT_TRUE(program.wait_for_sleeps(20)) << program.output();
    program.send(then);
  }
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

TEST_F(Sweep, TheLossOfTheTerminalDoesTheSame) {
  EXPECT_EQ(interrupt_with(SIGHUP, out_), 129);
  expect_one_done_and_one_interrupted(rows());
}

TEST_F(Sweep, UnderNohupTheLossOfTheTerminalIsNotTheEnd) {
  std::signal(SIGHUP, SIG_IGN);  // which the program inherits
  const int code = interrupt_with(SIGHUP, out_, SIGTERM);
  std::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(code, 143);
  expect_one_done_and_one_interrupted(rows());
}

TEST_F(Sweep, AKillLosesThePointInFlightAlone) {
  ASSERT_EQ(interrupt_with(SIGKILL, out_, 0, "500"), 1000 + SIGKILL);  // ten seconds: time enough to kill it
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows().front().kernel, "flash");
  const std::string first = rows().front().run_id;
  const Outcome outcome = sweep(
      "--resume --device mock --kernels flash,sleepy --exclude 'kernel=sleepy,seq_len=32;kernel=flash,seq_len=64' "
      "--seq-len 32,64 --d-model 16 --batch 1 --pass fwd --max-noise 0.0001 --time-limit 5min --max-samples 500");
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
