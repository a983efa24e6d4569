// Words of --device against an invented catalog, and the plan as the dry run prints it.
#include "bench/cli/devices.hpp"

#include <gmock/gmock.h>

#include <array>

#include "bench/cli/dry_run.hpp"
#include "kernels/catalog.hpp"

namespace attnbench::kernels {
namespace {

bool gpus_present = false;

std::optional<std::string> head_dim_up_to_64(const Problem& p, Pass, const Target&) {
  if (p.head_dim <= 64) return std::nullopt;
  return "head_dim must be 64 or less";
}
Footprint scores(const Problem& p, Pass, const Target&) {
  return {static_cast<std::size_t>(4 * p.batch * p.heads * p.seq_q * p.seq_k), 0};
}

std::span<const KernelInfo* const> kernels_of_all() {
  static const KernelInfo kNaive{"naive", "plain",           "obvious code", "textbook",        DeviceKind::kCpu,
                                 true,    head_dim_up_to_64, scores,         default_tolerance, nullptr};
  static const std::array<const KernelInfo*, 1> kTable{&kNaive};
  return kTable;
}

DeviceFacts facts_of(DeviceKind kind, int ordinal, std::string id) {
  DeviceFacts facts;
  facts.kind = kind;
  facts.ordinal = ordinal;
  facts.id = std::move(id);
  facts.name = "invented";
  facts.cores = 2;
  facts.memory_free_bytes = std::uint64_t{1} << 30;
  return facts;
}

base::Result<std::vector<DeviceFacts>> processors() { return std::vector{facts_of(DeviceKind::kCpu, 0, "cpu")}; }
base::Result<std::vector<DeviceFacts>> gpus() {
  if (!gpus_present) return base::fail(base::ErrorKind::kAbsent, "--device cuda: no GPU was found");
  return std::vector{facts_of(DeviceKind::kCuda, 0, "cuda:0"), facts_of(DeviceKind::kCuda, 1, "cuda:1")};
}

}  // namespace

base::Result<const Backend*> find_backend(std::string_view name) {
  static const Backend kCpu{DeviceKind::kCpu, "cpu", processors, nullptr, kernels_of_all};
  static const Backend kCuda{DeviceKind::kCuda, "cuda", gpus, nullptr, kernels_of_all};
  return name == "cpu" ? &kCpu : &kCuda;
}

}  // namespace attnbench::kernels

namespace attnbench::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Devices : public testing::Test {
 protected:
  void SetUp() override { kernels::gpus_present = true; }

  static std::vector<std::string> ids(const std::vector<std::string>& words) {
    const auto found = find_candidates(words);
    EXPECT_TRUE(found) << found.error().message;
    std::vector<std::string> result;
    if (found) {
      for (const plan::Candidate& candidate : *found) result.push_back(candidate.facts.id);
    }
    return result;
  }
};

TEST_F(Devices, AutoTakesTheFirstGpuAndTheProcessorWithoutOne) {
  EXPECT_THAT(ids({"auto"}), ElementsAre("cuda:0"));
  kernels::gpus_present = false;
  EXPECT_THAT(ids({"auto"}), ElementsAre("cpu"));
}

TEST_F(Devices, OrdinalsAllAndRepeatsAreUnderstood) {
  EXPECT_THAT(ids({"cuda"}), ElementsAre("cuda:0"));
  EXPECT_THAT(ids({"cuda:1", "cpu"}), ElementsAre("cuda:1", "cpu"));
  EXPECT_THAT(ids({"cuda:all", "cuda:0", "cpu", "cpu"}), ElementsAre("cuda:0", "cuda:1", "cpu"));
}

TEST_F(Devices, WhatWasAskedForByNameAndIsNotHereIsAbsent) {
  const auto ninth = find_candidates(std::vector<std::string>{"cuda:9"});
  ASSERT_FALSE(ninth);
  EXPECT_EQ(ninth.error().kind, base::ErrorKind::kAbsent);
  EXPECT_THAT(ninth.error().message, HasSubstr("--device cuda:9"));
  kernels::gpus_present = false;
  const auto none = find_candidates(std::vector<std::string>{"cuda"});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, base::ErrorKind::kAbsent);
}

TEST_F(Devices, OtherWordsAreRefused) {
  for (const char* word : {"gpu", "cuda:", "cuda:x", "cpu:-1", ""}) {
    const auto found = find_candidates(std::vector<std::string>{word});
    ASSERT_FALSE(found) << word;
    EXPECT_EQ(found.error().kind, base::ErrorKind::kUsage);
    EXPECT_THAT(found.error().message, HasSubstr("is not a device"));
  }
}

TEST_F(Devices, ThePlanIsPrintedWithItsRefusalsAndTotals) {
  SweepOptions options;
  options.axes.d_model = {64, 128};
  options.axes.seq_len = {1024, 16384};
  options.axes.pass = {kernels::Pass::kFwd};
  const auto devices = find_candidates(std::vector<std::string>{"cpu"});
  ASSERT_TRUE(devices);
  const auto plan = plan::make_plan(options, *devices);
  ASSERT_TRUE(plan) << plan.error().message;
  const std::string text = plan_table(*plan, options, *devices);
  EXPECT_THAT(text, HasSubstr("naive:plain"));
  EXPECT_THAT(text, HasSubstr("oom_predicted: --seq-len 16k needs 8.31 GiB"));
  EXPECT_THAT(text, HasSubstr("unsupported: head_dim must be 64 or less"));
  EXPECT_THAT(text, HasSubstr("4 cases in 4 points, 3 refused"));
  EXPECT_THAT(text, HasSubstr("cpu: invented, 1.00 GiB free"));
}

}  // namespace
}  // namespace attnbench::cli
