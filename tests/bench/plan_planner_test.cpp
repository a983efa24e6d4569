// Plans over invented devices and kernels whose answers are known.
#include <gmock/gmock.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "bench/plan/plan.hpp"
#include "bench/plan/predict.hpp"
#include "kernels/work.hpp"

namespace attnbench::plan {
namespace {

using cli::SweepOptions;
using kernels::DeviceKind;
using kernels::Dtype;
using kernels::Footprint;
using kernels::KernelInfo;
using kernels::Pass;
using kernels::Problem;
using kernels::Target;
using testing::ElementsAre;
using testing::HasSubstr;

std::optional<std::string> anything(const Problem&, Pass, const Target&) { return std::nullopt; }
std::optional<std::string> only_head_dim_64(const Problem& p, Pass, const Target&) {
  if (p.head_dim == 64) return std::nullopt;
  return "head_dim must be 64";
}
Footprint no_scratch(const Problem&, Pass, const Target&) { return {}; }
/// One fp32 score matrix per head to work on, kept for the backward.
Footprint scores(const Problem& p, Pass pass, const Target&) {
  const auto bytes = static_cast<std::size_t>(4 * p.batch * p.heads * p.seq_q * p.seq_k);
  return {bytes, pass == Pass::kFwd ? 0 : bytes};
}

KernelInfo make(std::string_view name, std::string_view variant, bool materialises, decltype(&anything) supports,
                decltype(&no_scratch) footprint, DeviceKind device = DeviceKind::kCpu) {
  KernelInfo info;
  info.name = name;
  info.variant = variant;
  info.device = device;
  info.materialises = materialises;
  info.supports = supports;
  info.footprint = footprint;
  info.tolerance = kernels::default_tolerance;
  return info;
}

const KernelInfo kNaive = make("naive", "plain", true, anything, scores);
const KernelInfo kFast = make("flash", "fast", false, only_head_dim_64, no_scratch);
const KernelInfo kWide = make("flash", "wide", false, anything, no_scratch);
const KernelInfo kPicky = make("picky", "one", false, only_head_dim_64, no_scratch);
const KernelInfo kGpuNaive = make("naive", "gpu", true, anything, scores, DeviceKind::kCuda);
const std::array<const KernelInfo*, 4> kCpuKernels{&kNaive, &kFast, &kWide, &kPicky};
const std::array<const KernelInfo*, 1> kGpuKernels{&kGpuNaive};

Candidate cpu() {
  Candidate candidate;
  candidate.facts.kind = DeviceKind::kCpu;
  candidate.facts.id = "cpu";
  candidate.facts.name = "a processor of this very machine";
  candidate.facts.cores = 2;
  candidate.facts.memory_free_bytes = std::uint64_t{1} << 30;
  candidate.facts.last_level_cache_bytes = std::uint64_t{1} << 20;
  candidate.kernels = kCpuKernels;
  return candidate;
}

Candidate gpu() {
  Candidate candidate = cpu();
  candidate.facts.kind = DeviceKind::kCuda;
  candidate.facts.id = "cuda:0";
  candidate.kernels = kGpuKernels;
  return candidate;
}

std::vector<Case> cases_of(const Plan& plan) {
  std::vector<Case> cases;
  for (const Point& point : plan.points) cases.insert(cases.end(), point.cases.begin(), point.cases.end());
  return cases;
}

Plan plan_of(const SweepOptions& options, const std::vector<Candidate>& candidates = {cpu()}) {
  auto plan = make_plan(options, candidates);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : Plan{};
}

std::string message_of(const SweepOptions& options, const std::vector<Candidate>& candidates = {cpu()}) {
  const auto plan = make_plan(options, candidates);
  EXPECT_FALSE(plan);
  if (plan) return "";
  EXPECT_EQ(plan.error().kind, base::ErrorKind::kUsage);
  return plan.error().message;
}

TEST(Planner, DefaultsAreTheReferenceGridOverEveryKernelName) {
  const Plan plan = plan_of({});
  // 3 widths, 3 lengths, 2 passes; naive, flash and picky in each point.
  EXPECT_EQ(plan.points.size(), 18u);
  for (const Point& point : plan.points) EXPECT_EQ(point.cases.size(), 3u);
  const Case& first = plan.points.front().cases.front();
  EXPECT_EQ(first.key, "naive/fwd/fp32/causal/b8_h1_kv1_d16_s256_sk256/cold/t2/cpu");
  EXPECT_EQ(first.threads, 2);
  EXPECT_FLOAT_EQ(first.problem.scale, 0.25f);
}

TEST(Planner, TheLastAxisTurnsFastest) {
  SweepOptions options;
  options.axes.d_model = {64, 16};
  options.axes.seq_len = {128, 256};
  options.axes.kernels = {{"naive", ""}};
  std::vector<std::string> seen;
  for (const Case& c : cases_of(plan_of(options))) {
    seen.push_back(std::to_string(c.d_model) + "/" + std::to_string(c.problem.seq_q) + "/" +
                   std::string(to_string(c.pass)));
  }
  EXPECT_THAT(seen, ElementsAre("64/128/fwd", "64/128/bwd", "64/256/fwd", "64/256/bwd", "16/128/fwd", "16/128/bwd",
                                "16/256/fwd", "16/256/bwd"));
}

TEST(Planner, CasesOfAPointDifferInTheKernelAloneAndShareTheSeed) {
  SweepOptions options;
  options.axes.seq_len = {128, 192};
  options.sampling.cache = {kernels::CacheState::kCold, kernels::CacheState::kHot};
  std::set<std::uint64_t> seeds;
  for (const Point& point : plan_of(options).points) {
    for (const Case& c : point.cases) {
      const Case& first = point.cases.front();
      EXPECT_EQ(c.problem, first.problem);
      EXPECT_EQ(c.pass, first.pass);
      EXPECT_EQ(c.cache, first.cache);
      EXPECT_EQ(c.seed, first.seed);
      seeds.insert(c.seed);
    }
  }
  // One seed per problem: 3 widths, 2 lengths; passes and caches share it.
  EXPECT_EQ(seeds.size(), 6u);
}

TEST(Planner, ADifferentSeedChangesInputsButNoKey) {
  SweepOptions options;
  const std::vector<Case> one = cases_of(plan_of(options));
  options.seed = 2;
  const std::vector<Case> two = cases_of(plan_of(options));
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].key, two[i].key);
    EXPECT_NE(one[i].seed, two[i].seed);
  }
}

TEST(Planner, KeysAreUniqueAndWithoutTheMachine) {
  SweepOptions options;
  options.axes.window = {-1, 64};
  options.axes.causal = {true, false};
  options.axes.heads = {2, 4};
  options.axes.kv_heads = {1, 2};
  options.axes.threads = {1, 2};
  options.axes.dtype = std::vector<Dtype>{Dtype::kFp32, Dtype::kBf16};
  options.axes.seq_len_k = {256, 512};
  std::set<std::string> keys;
  const std::vector<Case> cases = cases_of(plan_of(options));
  for (const Case& c : cases) {
    keys.insert(c.key);
    EXPECT_EQ(c.key.find("machine"), std::string::npos);
  }
  EXPECT_EQ(keys.size(), cases.size());
}

TEST(Planner, ZippedAxesMoveTogether) {
  SweepOptions options;
  options.axes.d_model = {64, 128, 256};
  options.axes.heads = {1, 2, 4};
  options.axes.seq_len = {128};
  options.axes.pass = {Pass::kFwd};
  options.axes.kernels = {{"naive", ""}};
  options.axes.zip = {{"d_model", "heads"}};
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  for (const Case& c : cases_of(plan_of(options))) seen.emplace_back(c.d_model, c.problem.heads);
  EXPECT_THAT(seen, ElementsAre(std::pair(64, 1), std::pair(128, 2), std::pair(256, 4)));
  options.axes.heads = {1, 2};
  EXPECT_THAT(message_of(options), HasSubstr("heads has 2 values and d_model has 3"));
}

TEST(Planner, ExcludeLeavesOutWhatMatchesEveryTerm) {
  SweepOptions options;
  options.axes.kernels = {{"naive", ""}, {"flash", ""}};
  options.axes.exclude = {{{{"kernel", "naive"}, {"seq_len", "1k:4k"}}}, {{{"pass", "bwd"}}}};
  for (const Case& c : cases_of(plan_of(options))) {
    EXPECT_EQ(c.pass, Pass::kFwd);
    EXPECT_FALSE(c.kernel == "naive" && c.problem.seq_q >= 1024) << c.key;
  }
  EXPECT_EQ(cases_of(plan_of(options)).size(), 3u * (1 + 3));
  options.axes.exclude = {{{{"device", "cpu"}}}};
  EXPECT_THAT(message_of(options), HasSubstr("selection is empty"));
}

TEST(Planner, AnExcludedShapeNeedNotBePossible) {
  SweepOptions options;
  options.axes.heads = {1, 5};
  EXPECT_THAT(message_of(options), HasSubstr("--d-model 16 is not a multiple of --heads 5"));
  options.axes.exclude = {{{{"heads", "5"}}}};
  EXPECT_EQ(plan_of(options).points.size(), 18u);
}

TEST(Planner, KvHeadsMustDivideHeads) {
  SweepOptions options;
  options.axes.heads = {8};
  options.axes.kv_heads = {3};
  EXPECT_THAT(message_of(options), HasSubstr("--heads 8 is not a multiple of --kv-heads 3"));
}

TEST(Planner, ANameTakesTheFirstVariantThatSupportsTheProblem) {
  SweepOptions options;
  options.axes.kernels = {{"flash", ""}};
  for (const Case& c : cases_of(plan_of(options))) {
    EXPECT_EQ(c.variant, c.problem.head_dim == 64 ? "fast" : "wide");
    EXPECT_EQ(c.refused_status, "");
  }
}

TEST(Planner, AVariantThatWasAskedForIsRefusedRatherThanReplaced) {
  SweepOptions options;
  options.axes.kernels = {{"flash", "fast"}};
  int refused = 0;
  for (const Case& c : cases_of(plan_of(options))) {
    EXPECT_EQ(c.variant, "fast");
    EXPECT_EQ(c.key.substr(0, 11), "flash:fast/");
    if (c.problem.head_dim == 64) continue;
    EXPECT_EQ(c.refused_status, "unsupported");
    EXPECT_EQ(c.refused_reason, "head_dim must be 64");
    ++refused;
  }
  EXPECT_EQ(refused, 12);
}

TEST(Planner, TheSameKernelIsNotPlannedTwiceInAPoint) {
  SweepOptions options;
  options.axes.d_model = {64};
  options.axes.kernels = {{"flash", ""}, {"flash", "fast"}, {"flash", "wide"}};
  for (const Point& point : plan_of(options).points) EXPECT_EQ(point.cases.size(), 2u);
}

TEST(Planner, PredictsTensorsSavedAndScratch) {
  SweepOptions options;
  options.axes.d_model = {16};
  options.axes.seq_len = {256};
  options.axes.kernels = {{"naive", ""}};
  const std::vector<Case> cases = cases_of(plan_of(options));
  const std::uint64_t matrix = std::uint64_t{4} * 8 * 256 * 256;
  EXPECT_EQ(cases[0].predicted_bytes, kernels::tensor_bytes(cases[0].problem, Pass::kFwd) + matrix);
  EXPECT_EQ(cases[1].predicted_bytes, kernels::tensor_bytes(cases[1].problem, Pass::kBwd) + 2 * matrix);
  EXPECT_GT(cases[0].predicted_time_us, 0);
}

TEST(Planner, WhatDoesNotFitIsRefusedWithTheFiguresAndAWayOut) {
  SweepOptions options;
  options.axes.d_model = {64};
  options.axes.seq_len = {16384};
  options.axes.pass = {Pass::kFwd};
  options.axes.kernels = {{"naive", ""}, {"flash", ""}};
  std::vector<Case> cases = cases_of(plan_of(options));
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0].refused_status, "oom_predicted");
  EXPECT_EQ(cases[0].refused_reason,
            "--seq-len 16k needs 8.31 GiB, 8.00 GiB of it scores, on cpu (1.00 GiB free); try --kernels flash or "
            "--seq-len 4k");
  EXPECT_EQ(cases[1].refused_status, "");
  options.try_oom = true;
  cases = cases_of(plan_of(options));
  EXPECT_EQ(cases[0].refused_status, "");
  EXPECT_GT(cases[0].predicted_bytes, std::uint64_t{8} << 30);
}

TEST(Planner, WhatTheHarnessNeedsCountsWhereMemoryIsShort) {
  SweepOptions options;
  options.axes.d_model = {64};
  options.axes.seq_len = {16384};
  options.axes.pass = {Pass::kFwd};
  options.axes.kernels = {{"flash", ""}};
  Candidate candidate = cpu();
  candidate.facts.memory_free_bytes = std::uint64_t{300}
                                      << 20;  // tensors 128 MiB, copies of them as much, flush 30 MiB
  EXPECT_EQ(cases_of(plan_of(options, {candidate}))[0].refused_status, "");
  candidate.facts.memory_free_bytes = std::uint64_t{250} << 20;
  EXPECT_EQ(cases_of(plan_of(options, {candidate}))[0].refused_status, "oom_predicted");
}

Footprint nobody_asks(const Problem&, Pass, const Target&) {
  ADD_FAILURE() << "asked about a problem that cannot be counted";
  return {};
}
std::optional<std::string> nobody_asks_either(const Problem&, Pass, const Target&) {
  ADD_FAILURE() << "asked about a problem that cannot be counted";
  return std::nullopt;
}

TEST(Planner, AProblemThatCannotBeCountedIsRefusedWithoutAskingItsKernel) {
  static const KernelInfo kBlind = make("blind", "one", false, nobody_asks_either, nobody_asks);
  static const std::array<const KernelInfo*, 1> kKernels{&kBlind};
  Candidate candidate = cpu();
  candidate.kernels = kKernels;
  candidate.facts.memory_free_bytes = 0;  // which otherwise refuses nothing
  SweepOptions options;
  options.try_oom = true;
  options.axes.pass = {Pass::kFwd};
  options.axes.batch = {std::int64_t{1} << 24};
  options.axes.heads = {std::int64_t{1} << 20};
  options.axes.d_model = {std::int64_t{1} << 24};
  options.axes.seq_len = {std::int64_t{1} << 20};
  for (const Case& c : cases_of(plan_of(options, {candidate}))) {
    EXPECT_EQ(c.refused_status, "oom_predicted");
    EXPECT_EQ(c.predicted_bytes, 0u);
    EXPECT_THAT(c.refused_reason, HasSubstr("--seq-len 1M, --batch 16M, --heads 1M takes 4160 EiB"));
  }
}

TEST(Planner, APlanOfTooManyCasesIsRefusedAtOnce) {
  SweepOptions options;
  options.axes.seq_len.clear();
  for (std::int64_t s = 1; s <= 10000; ++s) options.axes.seq_len.push_back(s);
  options.axes.batch = options.axes.seq_len;
  EXPECT_THAT(message_of(options), HasSubstr("1800000000 cases on cpu (3 kernels x 10000 batch x 3 d_model x 10000 "
                                             "seq_len x 2 pass), more than 1000000"));
  options.axes.zip = {{"seq_len", "batch"}};
  options.axes.kernels = {{"flash", ""}};
  options.axes.d_model = {64};
  EXPECT_EQ(plan_of(options).points.size(), 20000u);
}

TEST(Planner, NothingIsRefusedForSizeWhereFreeMemoryIsUnknown) {
  Candidate candidate = cpu();
  candidate.facts.memory_free_bytes = 0;
  SweepOptions options;
  options.axes.seq_len = {65536};
  options.axes.kernels = {{"naive", ""}};
  for (const Case& c : cases_of(plan_of(options, {candidate}))) EXPECT_EQ(c.refused_status, "");
}

TEST(Planner, ADeviceBringsItsDtypesAndHasNoHostThreads) {
  SweepOptions options;
  options.axes.seq_len = {256};
  options.axes.d_model = {16};
  options.axes.pass = {Pass::kFwd};
  const std::vector<Case> cases = cases_of(plan_of(options, {gpu()}));
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0].key, "naive/fwd/fp32/causal/b8_h1_kv1_d16_s256_sk256/cold/cuda:0");
  EXPECT_EQ(cases[1].problem.dtype, Dtype::kBf16);
  EXPECT_EQ(cases[0].threads, 0);
}

TEST(Planner, AKernelOfOneDeviceOnlyIsPlannedThere) {
  SweepOptions options;
  options.axes.kernels = {{"flash", ""}};
  for (const Case& c : cases_of(plan_of(options, {gpu(), cpu()}))) EXPECT_EQ(c.device, "cpu");
}

TEST(Planner, UnknownNamesAreRefusedWithTheNearest) {
  SweepOptions options;
  options.axes.kernels = {{"flahs", ""}};
  EXPECT_THAT(message_of(options), HasSubstr("cpu has no kernel \"flahs\"; did you mean \"flash\"?"));
  options.axes.kernels = {{"flash", "fats"}};
  EXPECT_THAT(message_of(options), HasSubstr("no variant \"fats\"; did you mean \"fast\"?"));
  options.axes.kernels = {{"cudnn", ""}};
  EXPECT_THAT(message_of(options), HasSubstr("known: naive, flash, picky"));
  options.axes.kernels = {};
  options.baseline = "niave";
  EXPECT_THAT(message_of(options), HasSubstr("--baseline: cpu has no kernel \"niave\"; did you mean \"naive\"?"));
}

TEST(Planner, NoDeviceIsAnEmptySelection) { EXPECT_THAT(message_of({}, {}), HasSubstr("selection is empty")); }

}  // namespace
}  // namespace attnbench::plan
