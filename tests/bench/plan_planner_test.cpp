// Plans over invented devices and kernels whose answers are known.
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

#include "tests/bench/plan_case.hpp"

namespace attnbench::plan {
namespace {

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

TEST(Planner, ExcludeCanNameAVariant) {
  SweepOptions options;
  options.axes.kernels = {{"flash", "fast"}, {"flash", "wide"}};
  options.axes.d_model = {64};
  options.axes.exclude = {{{{"kernel", "flash:wide"}}}};
  const auto left = cases_of(plan_of(options));
  EXPECT_EQ(left.size(), 6u);
  for (const Case& c : left) EXPECT_EQ(c.variant, "fast");
}

TEST(Planner, ExcludeAndBaselineNameKernelsThatAreThere) {
  SweepOptions options;
  const auto excluding = [&](const std::vector<cli::ExcludeRule::Term>& terms) {
    options.axes.exclude = {{terms}};
    return message_of(options);
  };
  EXPECT_THAT(excluding({{"kernel", "flsh"}}),
              HasSubstr("--exclude: cpu has no kernel \"flsh\"; did you mean \"flash\"?"));
  EXPECT_THAT(excluding({{"kernel", "naive:nosuch"}}),
              HasSubstr("naive on cpu has no variant \"nosuch\"; known: plain"));
  EXPECT_THAT(excluding({{"variant", "plian"}}), HasSubstr("variant \"plian\"; did you mean \"plain\"?"));
  EXPECT_THAT(excluding({{"kernel", "naive"}, {"variant", "fast"}}), HasSubstr("known: plain"));
  options.axes.exclude = {{{{"variant", "fast"}}}};
  EXPECT_FALSE(plan_of(options).points.empty());
  options.baseline = "naive:plain";
  EXPECT_FALSE(plan_of(options).points.empty());
  options.baseline = "naive:plian";
  EXPECT_THAT(message_of(options),
              HasSubstr("--baseline: naive on cpu has no variant \"plian\"; did you mean \"plain\"?"));
}

TEST(Planner, AClockThatADeviceDoesNotHaveIsRefused) {
  SweepOptions options;
  options.axes.kernels = {{"naive", ""}};
  const auto message = [&](kernels::Timing timing, const std::vector<Candidate>& candidates) {
    options.sampling.timing = timing;
    return message_of(options, candidates);
  };
  EXPECT_THAT(message(kernels::Timing::kGraph, {cpu()}),
              HasSubstr("--timing graph does not exist on cpu; use auto or wall"));
  EXPECT_THAT(message(kernels::Timing::kDeclared, {cpu()}), HasSubstr("use auto or wall"));
  EXPECT_THAT(message(kernels::Timing::kWall, {gpu()}),
              HasSubstr("does not exist on cuda:0; use auto or events or graph"));
  EXPECT_THAT(message(kernels::Timing::kEvents, {gpu(), cpu()}), HasSubstr("on cpu"));
  for (const kernels::Timing timing : {kernels::Timing::kAuto, kernels::Timing::kEvents, kernels::Timing::kGraph}) {
    options.sampling.timing = timing;
    EXPECT_FALSE(plan_of(options, {gpu()}).points.empty());
  }
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
