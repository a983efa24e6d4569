// Arguments to verbs and options; refusals with what was meant.
#include "bench/cli/parse.hpp"

#include <gmock/gmock.h>

namespace attnbench::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

base::Result<Command> parse_words(const std::vector<std::string>& words, const Environment& environment = {}) {
  return parse(words, environment);
}

SweepOptions sweep(std::vector<std::string> words) {
  words.insert(words.begin(), "sweep");
  const auto command = parse_words(words);
  EXPECT_TRUE(command) << command.error().message;
  return command ? std::get<SweepOptions>(*command) : SweepOptions{};
}

std::string refusal(const std::vector<std::string>& words) {
  const auto command = parse_words(words);
  EXPECT_FALSE(command);
  if (command) return "";
  EXPECT_EQ(command.error().kind, base::ErrorKind::kUsage);
  return command.error().message;
}

TEST(Parse, ASweepWithoutOptionsHasTheDefaults) {
  const SweepOptions options = sweep({});
  EXPECT_THAT(options.axes.d_model, ElementsAre(16, 32, 64));
  EXPECT_THAT(options.axes.seq_len, ElementsAre(256, 1024, 4096));
  EXPECT_THAT(options.devices, ElementsAre("auto"));
  EXPECT_EQ(options.command, "attnbench sweep");
}

TEST(Parse, EveryAxisReachesItsField) {
  const SweepOptions o =
      sweep({"--d-model", "64",       "--seq-len",  "1k,2k", "--seq-len-k", "4k",   "--batch",   "2",
             "--heads",   "4",        "--kv-heads", "2",     "--dtype",     "bf16", "--causal",  "off",
             "--window",  "none,128", "--scale",    "0.5",   "--pass",      "fwd",  "--kernels", "blas,flash:x",
             "--threads", "2",        "--device",   "cpu",   "--cache",     "both"});
  EXPECT_THAT(o.axes.d_model, ElementsAre(64));
  EXPECT_THAT(o.axes.seq_len, ElementsAre(1024, 2048));
  EXPECT_THAT(o.axes.seq_len_k, ElementsAre(4096));
  EXPECT_THAT(o.axes.batch, ElementsAre(2));
  EXPECT_THAT(o.axes.heads, ElementsAre(4));
  EXPECT_THAT(o.axes.kv_heads, ElementsAre(2));
  EXPECT_THAT(*o.axes.dtype, ElementsAre(kernels::Dtype::kBf16));
  EXPECT_THAT(o.axes.causal, ElementsAre(false));
  EXPECT_THAT(o.axes.window, ElementsAre(-1, 128));
  EXPECT_EQ(o.axes.scale, 0.5);
  EXPECT_THAT(o.axes.pass, ElementsAre(kernels::Pass::kFwd));
  EXPECT_THAT(o.axes.kernels, ElementsAre(KernelChoice{"blas", ""}, KernelChoice{"flash", "x"}));
  EXPECT_THAT(o.axes.threads, ElementsAre(2));
  EXPECT_THAT(o.devices, ElementsAre("cpu"));
  EXPECT_EQ(o.sampling.cache.size(), 2u);
}

TEST(Parse, EverySamplingOptionReachesItsField) {
  const SweepOptions o = sweep({"--timing", "wall", "--seed", "9", "--min-samples", "5", "--max-samples", "50",
                                "--min-time", "100ms", "--time-limit", "2", "--max-noise", "2%", "--run-limit", "3min",
                                "--deterministic", "--thermal", "sustained"});
  EXPECT_EQ(o.sampling.timing, kernels::Timing::kWall);
  EXPECT_EQ(o.seed, 9u);
  EXPECT_EQ(o.sampling.samples_min, 5);
  EXPECT_EQ(o.sampling.samples_max, 50);
  EXPECT_DOUBLE_EQ(o.sampling.time_min_s, 0.1);
  EXPECT_DOUBLE_EQ(o.sampling.time_limit_s, 2.0);
  EXPECT_DOUBLE_EQ(o.sampling.noise_max_pct, 2.0);
  EXPECT_DOUBLE_EQ(o.run_limit_s, 180.0);
  EXPECT_TRUE(o.sampling.deterministic);
  EXPECT_TRUE(o.sampling.sustained);
}

TEST(Parse, EveryOutputAndPlanOptionReachesItsField) {
  const SweepOptions o =
      sweep({"--zip",  "batch,heads",   "--exclude", "kernel=naive", "--dry-run", "--try-oom", "--resume", "--baseline",
             "cublas", "--out",         "dir",       "--csv",        "a.csv",     "--json",    "-",        "--md",
             "b.md",   "--gbench-json", "g.json",    "--quiet",      "--color",   "never"});
  EXPECT_EQ(o.axes.zip.size(), 1u);
  EXPECT_EQ(o.axes.exclude.size(), 1u);
  EXPECT_TRUE(o.dry_run);
  EXPECT_TRUE(o.try_oom);
  EXPECT_TRUE(o.resume);
  EXPECT_EQ(o.baseline, "blas");
  EXPECT_EQ(o.outputs.out_dir, "dir");
  EXPECT_EQ(o.outputs.csv, "a.csv");
  EXPECT_EQ(o.outputs.json, "-");
  EXPECT_EQ(o.outputs.md, "b.md");
  EXPECT_EQ(o.outputs.gbench_json, "g.json");
  EXPECT_TRUE(o.outputs.quiet);
  EXPECT_TRUE(o.outputs.owns_stdout());
  EXPECT_FALSE(sweep({"--csv", "a.csv"}).outputs.owns_stdout());
  EXPECT_EQ(o.outputs.color, Color::kNever);
}

TEST(Parse, SpellingsThatPeopleCopyAreTaken) {
  EXPECT_THAT(sweep({"--seq_len=512", "--devices", "cpu"}).axes.seq_len, ElementsAre(512));
  EXPECT_THAT(sweep({"--seq-len", "512", "--seq-len", "1k"}).axes.seq_len, ElementsAre(512, 1024));
  EXPECT_THAT(sweep({"--window", "-1"}).axes.window, ElementsAre(-1));
  EXPECT_EQ(sweep({"--exclude", "kernel=naive", "--exclude", "dtype=bf16"}).axes.exclude.size(), 2u);
  EXPECT_EQ(sweep({"--color", "never", "--color", "always"}).outputs.color, Color::kAlways);
}

TEST(Parse, TheCommandIsKeptAsItCanBeTypedAgain) {
  EXPECT_EQ(sweep({"--exclude", "kernel=naive;pass=bwd", "--out", "it's"}).command,
            "attnbench sweep --exclude 'kernel=naive;pass=bwd' --out 'it'\\''s'");
}

TEST(Parse, VerbsGetTheirWordAndTheirOptions) {
  const auto report = parse_words({"report", "run", "--md", "-", "--baseline", "blas"});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(std::get<ReportOptions>(*report).input, "run");
  EXPECT_EQ(std::get<ReportOptions>(*report).outputs.md, "-");
  const auto verify = parse_words({"verify", "golden", "--kernels", "flash", "--dtype", "fp32"});
  ASSERT_TRUE(verify) << verify.error().message;
  EXPECT_EQ(std::get<VerifyOptions>(*verify).directory, "golden");
  EXPECT_EQ(std::get<VerifyOptions>(*verify).kernels.size(), 1u);
  EXPECT_EQ(std::get<ListOptions>(*parse_words({"list", "kernels"})).what, "kernels");
  EXPECT_EQ(std::get<ExplainOptions>(*parse_words({"explain", "tflops"})).column, "tflops");
  EXPECT_TRUE(std::holds_alternative<DoctorOptions>(*parse_words({"doctor"})));
}

TEST(Parse, GbenchPassesTheFlagsOfGoogleBenchmarkOn) {
  const auto command =
      parse_words({"gbench", "--benchmark_list_tests", "--seq-len", "1k", "--", "--benchmark_filter=x"});
  ASSERT_TRUE(command) << command.error().message;
  const auto& options = std::get<GbenchOptions>(*command);
  EXPECT_THAT(options.benchmark_args, ElementsAre("--benchmark_list_tests", "--benchmark_filter=x"));
  EXPECT_THAT(options.sweep.axes.seq_len, ElementsAre(1024));
  EXPECT_THAT(refusal({"sweep", "--benchmark_filter=x"}), HasSubstr("attnbench gbench"));
}

TEST(Parse, HelpAndVersionArePrinted) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {}, {"--help"}, {"-h"}, {"sweep", "--help"}, {"--version"}, {"version"}, {"report", "--help"}}) {
    const auto command = parse_words(words);
    ASSERT_TRUE(command) << command.error().message;
    ASSERT_TRUE(std::holds_alternative<Printout>(*command));
    EXPECT_FALSE(std::get<Printout>(*command).text.empty());
  }
  EXPECT_THAT(std::get<Printout>(*parse_words({"sweep", "--help"})).text,
              HasSubstr("Usage: attnbench sweep [options]"));
}

TEST(Parse, UnknownWordsAreRefusedWithTheNearest) {
  EXPECT_THAT(refusal({"sweeep"}), HasSubstr("unknown verb \"sweeep\"; did you mean \"sweep\"?"));
  EXPECT_THAT(refusal({"frobnicate"}), HasSubstr("known: sweep, report"));
  EXPECT_THAT(refusal({"sweep", "--seq-length", "1k"}), HasSubstr("no option --seq-length; did you mean --seq-len?"));
  EXPECT_THAT(refusal({"sweep", "--kernel-set=x"}), HasSubstr("no option --kernel-set"));
  EXPECT_THAT(refusal({"report", "run", "--seq-len", "1k"}), HasSubstr("report has no option --seq-len"));
  EXPECT_THAT(refusal({"sweep", "1k"}), HasSubstr("\"1k\" is left over"));
  EXPECT_THAT(refusal({"--seq-len", "1k"}), HasSubstr("a verb comes first; try attnbench sweep --seq-len"));
  EXPECT_THAT(refusal({"sweep", "--color", "sometimes"}), HasSubstr("known: auto, always, never"));
}

TEST(Parse, WhatIsMissingIsSaid) {
  EXPECT_THAT(refusal({"sweep", "--seq-len"}), HasSubstr("--seq-len"));
  EXPECT_THAT(refusal({"report"}), HasSubstr("report needs RUN"));
  EXPECT_THAT(refusal({"list"}), HasSubstr("try attnbench list kernels"));
  EXPECT_THAT(refusal({"sweep", "--resume"}), HasSubstr("--out DIR"));
}

TEST(Parse, AScaleIsANormalNumberInFp32) {
  for (const char* scale : {"1e39", "1e-39", "1e-46", "0", "-1", "3.5e38"}) {
    EXPECT_FALSE(parse(std::vector<std::string>{"sweep", "--scale", scale}, {})) << scale;
  }
  for (const char* scale : {"3.4e38", "1.2e-38", "0.125"}) {
    EXPECT_TRUE(parse(std::vector<std::string>{"sweep", "--scale", scale}, {})) << scale;
  }
}

TEST(Parse, LengthsAndBatchMayBeZero) {
  EXPECT_TRUE(parse(std::vector<std::string>{"sweep", "--seq-len", "0,5", "--seq-len-k", "0", "--batch", "0"}, {}));
  EXPECT_FALSE(parse(std::vector<std::string>{"sweep", "--heads", "0"}, {}));
  EXPECT_FALSE(parse(std::vector<std::string>{"sweep", "--seq-len", "0:4k:x2"}, {}));
}

TEST(Parse, AWrongValueIsShownWithACaret) {
  EXPECT_EQ(refusal({"sweep", "--seq-len", "4k:256"}),
            "--seq-len: the range is reversed: it ends at 256, below its start 4k\n"
            "  4k:256\n"
            "     ^\n"
            "  try: write 256:4k");
  EXPECT_THAT(refusal({"sweep", "--dtype", "fp32,fp23"}), HasSubstr("\n  fp32,fp23\n       ^\n  try: "));
  for (const char* option : {"--scale", "--max-noise", "--time-limit", "--seed", "--min-samples"}) {
    EXPECT_THAT(refusal({"sweep", option, "abc"}), HasSubstr(option));
    EXPECT_THAT(refusal({"sweep", option, "-1"}), HasSubstr(option));
  }
}

TEST(Parse, ABaselineKeepsItsVariant) {
  EXPECT_EQ(sweep({"--baseline", "cublas"}).baseline, "blas");
  EXPECT_EQ(sweep({"--baseline", "flash:highway"}).baseline, "flash:highway");
  const auto report = parse_words({"report", "run", "--baseline", "onednn:onednn"});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(std::get<ReportOptions>(*report).baseline, "blas:onednn");
}

TEST(Parse, ASeedIsWhatARowCanHold) {
  EXPECT_EQ(sweep({"--seed", "0"}).seed, 0u);
  EXPECT_EQ(sweep({"--seed", "9223372036854775807"}).seed, 9223372036854775807u);
  for (const char* seed : {"9223372036854775808", "18446744073709551615", "18446744073709551616", "1.0", ""}) {
    EXPECT_THAT(refusal({"sweep", std::string("--seed=") + seed}), HasSubstr("--seed")) << seed;
  }
}

TEST(Parse, OptionsThatExcludeEachOtherAreRefused) {
  EXPECT_THAT(refusal({"sweep", "--csv", "-", "--json", "-"}),
              HasSubstr("--csv and --json both write to standard output"));
  EXPECT_THAT(refusal({"report", "x", "--md", "-", "--gbench-json", "-"}), HasSubstr("both write to standard output"));
  EXPECT_THAT(refusal({"sweep", "--csv", "a", "--md", "a"}), HasSubstr("both write to a"));
  EXPECT_THAT(refusal({"sweep", "--csv", "a", "--json", "./a"}), HasSubstr("--csv and --json both write to a"));
  EXPECT_THAT(refusal({"report", "x", "--md", "no/../a", "--json", "a"}), HasSubstr("--json and --md both write"));
  EXPECT_THAT(refusal({"sweep", "--out", "d", "--csv", "d/rows.jsonl"}), HasSubstr("over the rows"));
  EXPECT_TRUE(parse_words({"sweep", "--csv", "/dev/null", "--json", "/dev/null"}));
  EXPECT_TRUE(parse_words({"sweep", "--csv", "a", "--json", "b", "--md", "-", "--out", "d"}));
  EXPECT_THAT(refusal({"sweep", "--min-samples", "9", "--max-samples", "3"}), HasSubstr("--max-samples 9"));
}

}  // namespace
}  // namespace attnbench::cli
