// What a plan says of memory and of size, and what it refuses for it.
#include <gmock/gmock.h>

#include <string>

#include "bench/plan/predict.hpp"
#include "kernels/work.hpp"
#include "tests/bench/plan_case.hpp"

namespace attnbench::plan {
namespace {

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

}  // namespace
}  // namespace attnbench::plan
