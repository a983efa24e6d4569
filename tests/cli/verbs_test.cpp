// The verbs that run nothing: help, version, list, explain, doctor, the dry run.
#include <gmock/gmock.h>

#include "tests/cli/program.hpp"

namespace attnbench::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Verbs, HelpNamesEveryVerb) {
  const Outcome outcome = run_program("--help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* verb : {"sweep", "report", "verify", "gbench", "list", "explain", "doctor", "version"}) {
    EXPECT_THAT(outcome.out, HasSubstr(verb));
    EXPECT_EQ(run_program(std::string(verb) + " --help").code, 0) << verb;
  }
}

TEST(Verbs, HelpLoadsNoLibraryOfTheKernels) {
  // The loader prints what it would load and leaves.
  const Outcome outcome = run_program("", "LD_TRACE_LOADED_OBJECTS=1");
  EXPECT_THAT(outcome.out, HasSubstr("libc.so"));
  for (const char* library : {"dnnl", "hwy", "gomp", "cuda", "benchmark"}) {
    EXPECT_THAT(outcome.out, Not(HasSubstr(library)));
  }
}

TEST(Verbs, VersionNamesCommitAndCompiler) {
  const Outcome outcome = run_program("--version");
  EXPECT_EQ(outcome.code, 0);
  for (const char* word : {"attnbench 0.", "commit", "compiler", "flags", "cuda"})
    EXPECT_THAT(outcome.out, HasSubstr(word));
  EXPECT_EQ(run_program("version").out, outcome.out);
}

TEST(Verbs, ListColumnsAndExplainAgree) {
  const Outcome list = run_program("list columns");
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.out, HasSubstr("time_us_median"));
  const Outcome explain = run_program("explain flops_model");
  EXPECT_EQ(explain.code, 0);
  EXPECT_THAT(explain.out, HasSubstr("FLOP"));
}

TEST(Verbs, ListKernelsAndDevicesKnowTheProcessor) {
  const Outcome kernels = run_program("list kernels --device cpu");
  EXPECT_EQ(kernels.code, 0) << kernels.err;
  for (const char* word : {"naive", "blas", "flash", "source:"}) EXPECT_THAT(kernels.out, HasSubstr(word));
  const Outcome devices = run_program("list devices --device cpu");
  EXPECT_EQ(devices.code, 0);
  EXPECT_THAT(devices.out, HasSubstr("processors"));
}

TEST(Verbs, DoctorSaysWhatWasFound) {
  const Outcome outcome = run_program("doctor");
  EXPECT_EQ(outcome.code, 0);
  for (const char* word : {"Build", "Machine", "CPU", "CUDA", "Advice"}) EXPECT_THAT(outcome.out, HasSubstr(word));
}

TEST(Verbs, TheDryRunPrintsThePlanAndRunsNothing) {
  const Outcome outcome =
      run_program("sweep --dry-run --device cpu --seq-len 256,1M --d-model 64 --kernels naive,flash");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("8 cases in 4 points"));
  EXPECT_THAT(outcome.out, HasSubstr("oom_predicted: --seq-len 1M needs"));
  EXPECT_THAT(outcome.out, HasSubstr("try --kernels flash"));
  EXPECT_THAT(outcome.out, HasSubstr("Nothing was run"));
}

TEST(Verbs, TheDryRunIsTheSameTwice) {
  const std::string arguments = "sweep --dry-run --device mock";
  const Outcome one = run_program(arguments);
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, run_program(arguments).out);
}

TEST(Verbs, CublasIsTakenForBlas) {
  const Outcome outcome = run_program("sweep --dry-run --device cpu --seq-len 256 --kernels cublas");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("blas"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("cublas")));
}

}  // namespace
}  // namespace attnbench::tests
