// The verbs that run nothing: help, version, list, explain, doctor, the dry run.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <CLI/Version.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/measure/stopping.hpp"
#include "tests/cli/program.hpp"

namespace attnbench::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Verbs, HelpNamesEveryVerb) {
  const Outcome outcome = run_program("--help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* verb :
       {"sweep", "report", "verify", "gbench", "compare", "noise", "list", "explain", "doctor", "version"}) {
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
  for (const char* word : {"attnbench 0.", "commit", "compiler", "flags", "CPU backend", "CUDA backend"})
    EXPECT_THAT(outcome.out, HasSubstr(word));
  EXPECT_EQ(run_program("version").out, outcome.out);
}

/// The last word of the line that begins with `name`.
std::string version_of(const std::string& text, const std::string& name) {
  const std::size_t at = ("\n" + text).find("\n" + name + " ");
  if (at == std::string::npos) return "no line " + name;
  const std::string line = text.substr(at, text.find('\n', at) - at);
  return line.substr(line.rfind(' ') + 1);
}

TEST(Verbs, VersionNamesTheLibrariesItWasCompiledAgainst) {
  const std::string text = run_program("--version").out;
  EXPECT_EQ(version_of(text, "fmt"),
            fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  EXPECT_EQ(version_of(text, "CLI11"), CLI11_VERSION);
  EXPECT_EQ(
      version_of(text, "JSON for Modern C++"),
      fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH));
  EXPECT_THAT(version_of(text, "Google Benchmark"), testing::MatchesRegex("v?[0-9]+\\.[0-9]+\\.[0-9]+"));
  // On the machine of the build what is loaded is what was compiled against.
  const std::string loaded = run_program("doctor").out;
  for (const char* name : {"oneDNN", "Highway"}) {
    EXPECT_THAT(version_of(text, name), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+")) << name;
    EXPECT_THAT(loaded, HasSubstr(version_of(text, name)));
  }
  EXPECT_THAT(text, testing::ContainsRegex("CUDA backend +(not built: |built as a plug-in.*nvcc [0-9])"));
}

TEST(Verbs, ListColumnsAndExplainAgree) {
  const Outcome list = run_program("list columns");
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.out, HasSubstr("time_us_median"));
  const Outcome explain = run_program("explain flops_model");
  EXPECT_EQ(explain.code, 0);
  EXPECT_THAT(explain.out, HasSubstr("FLOP"));
}

TEST(Verbs, ExplainCountsTheBytesThatTheModelCounts) {
  const Outcome outcome = run_program("explain bytes_model");
  EXPECT_THAT(outcome.out, HasSubstr("backward: q, k, v, o, lse, dout, dq, dk, dv, and delta"));
  EXPECT_THAT(run_program("explain err_tolerance").out, HasSubstr("up to 1e-3"));
}

TEST(Verbs, ExplainNamesEveryReasonToStop) {
  const Outcome outcome = run_program("explain stop_reason");
  EXPECT_EQ(outcome.code, 0);
  int count = 0;
  for (; measure::to_string(static_cast<measure::StopReason>(count)) != "?"; ++count) {
    EXPECT_THAT(outcome.out,
                HasSubstr(std::string(measure::to_string(static_cast<measure::StopReason>(count))) + ": "));
  }
  EXPECT_GE(count, 7);
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
      run_program("sweep --dry-run --device cpu --batch 1 --seq-len 256,1M --d-model 64 --kernels naive,flash");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("8 cases in 4 points"));
  EXPECT_THAT(outcome.out, HasSubstr("oom_predicted: --seq-len 1M needs"));
  EXPECT_THAT(outcome.out, HasSubstr("try --kernels flash"));
  EXPECT_THAT(outcome.out, HasSubstr("Nothing was run"));
}

TEST(Verbs, TheDryRunOfTheLongestSequenceIsImmediate) {
  const Outcome outcome = run_program("sweep --dry-run --device mock --seq-len 2^32 --kernels flash --pass fwd");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("oom_predicted: --seq-len 4096M needs"));
}

TEST(Verbs, TheDryRunCountsFlushesAndChecks) {
  // Of mock, with hot caches and launches of microseconds, three rows take from 0.2 s each to 3 s each.
  const std::string point = "sweep --dry-run --device mock --seq-len 64 --d-model 16 --batch 1 --pass fwd ";
  EXPECT_THAT(run_program(point + "--cache hot").out,
              HasSubstr("It takes from 600 ms (every row stops as soon as it may)"
                        " to 9.00 s (every row runs to its limit)"));
  // 60 flushes of this processor are part of the least time of one row.
  const std::string many =
      "sweep --dry-run --device cpu --kernels flash --seq-len 64 --d-model 16 --batch 1 --pass fwd "
      "--min-samples 60 --min-time 0 --cache ";
  EXPECT_NE(run_program(many + "cold").out, run_program(many + "hot").out);
}

TEST(Verbs, TheDryRunIsTheSameTwice) {
  const std::string arguments = "sweep --dry-run --device mock";
  const Outcome one = run_program(arguments);
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, run_program(arguments).out);
}

TEST(Verbs, TheMockDeviceTakesTheKernelsThatFailOnlyByName) {
  const Outcome by_default = run_program("sweep --dry-run --device mock --seq-len 64");
  EXPECT_EQ(by_default.code, 0) << by_default.err;
  for (const char* kernel : {"naive", "blas", "flash"}) EXPECT_THAT(by_default.out, HasSubstr(kernel));
  for (const std::string kernel : {"incorrect", "unsupported:", "oom", "failed", "lost", "slow", "sleepy"}) {
    EXPECT_THAT(by_default.out, Not(HasSubstr(kernel)));
    const std::string name = kernel.substr(0, kernel.find(':'));
    const Outcome named = run_program("sweep --dry-run --device mock --seq-len 64 --kernels " + name);
    EXPECT_EQ(named.code, 0) << named.err;
    EXPECT_THAT(named.out, HasSubstr(name + ":mock"));
  }
}

TEST(Verbs, CublasIsTakenForBlas) {
  const Outcome outcome = run_program("sweep --dry-run --device cpu --seq-len 256 --kernels cublas");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("blas"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("cublas")));
}

}  // namespace
}  // namespace attnbench::tests
