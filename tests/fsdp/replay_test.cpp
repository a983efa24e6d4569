#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "bench/run/fsdp_replay.hpp"
#include "kernels/device/cpu_device.hpp"
#include "toy.hpp"

namespace attnbench::run {
namespace {

using fsdp::Accumulation;
using fsdp::EngineOptions;
using fsdp::Strategy;
using kernels::Dtype;

measure::Trajectory load(const std::string& name) {
  const auto file =
      measure::SafeTensors::load(std::string(ATTNBENCH_SOURCE_DIR) + "/tests/golden/training_" + name + ".safetensors");
  if (!file) throw std::runtime_error(file.error().message);
  auto run = measure::read_trajectory(*file);
  if (!run) throw std::runtime_error(run.error().message);
  return std::move(*run);
}

/// Replays on threads and expects every comparison to pass. Returns the errors as rank 0 has them.
std::vector<ReplayError> expect_parity(const measure::Trajectory& run, int world, const EngineOptions& options) {
  std::vector<ReplayError> errors;
  fsdp::tests::expect_world(world, {}, [&](int rank, fsdp::Communicator& communicator) -> base::Result<void> {
    kernels::CpuDevice device(1);
    auto result = replay(run, options, device, communicator);
    if (!result) return tl::unexpected(result.error());
    if (rank == 0) errors = std::move(*result);
    return {};
  });
  // Loss and norm of each step, a gradient and a weight for each tensor.
  EXPECT_EQ(errors.size(), 2 * (run.losses.size() + run.init.size()));
  for (const ReplayError& error : errors) {
    EXPECT_TRUE(error.passed()) << error.what << ": " << error.error << ", allowed " << error.allowed << ", world "
                                << world << ", prefetch " << options.prefetch;
  }
  return errors;
}

class Replay : public ::testing::TestWithParam<const char*> {};

TEST_P(Replay, FollowsTheFileAtEveryWorldSizeAndPrefetchDepth) {
  const auto run = load(GetParam());
  for (const int world : {1, 2, 3, 4, 8}) {
    for (const int prefetch : {0, 1, 2, 8}) {
      EngineOptions options;
      options.prefetch = prefetch;
      expect_parity(run, world, options);
    }
  }
}

TEST_P(Replay, FollowsTheFileWithCheckpointedActivations) {
  const auto run = load(GetParam());
  for (const int world : {1, 2, 3, 4, 8}) {
    EngineOptions options;
    options.checkpoint = true;
    expect_parity(run, world, options);
  }
}

TEST_P(Replay, FollowsTheFileInEveryStrategyAndWayToAccumulate) {
  const auto run = load(GetParam());
  for (const Strategy strategy : {Strategy::kFsdp, Strategy::kShardGradOp, Strategy::kDdp}) {
    for (const Accumulation accumulation : {Accumulation::kSharded, Accumulation::kUnsharded}) {
      if (strategy == Strategy::kDdp && accumulation == Accumulation::kSharded) continue;
      EngineOptions options;
      options.strategy = strategy;
      options.micro_batches = 3;
      options.accumulation = accumulation;
      expect_parity(run, 4, options);
    }
  }
}

TEST_P(Replay, StaysWithinAHundredthOfTheLossesIn16Bits) {
  const auto run = load(GetParam());
  for (const Dtype param : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    for (const Dtype reduce : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
      if (param != Dtype::kFp32 && reduce != Dtype::kFp32 && reduce != param) continue;
      for (const Strategy strategy : {Strategy::kFsdp, Strategy::kDdp}) {
        EngineOptions options;
        options.strategy = strategy;
        options.param_dtype = param;
        options.reduce_dtype = reduce;
        expect_parity(run, 2, options);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Replay, ::testing::Values("small", "clip"),
                         [](const auto& param) { return std::string(param.param); });

TEST(ReplayRefusals, ABatchThatDoesNotDivideIsNamed) {
  const auto run = load("small");
  const auto results = fsdp::tests::run_world(5, {}, [&](int, fsdp::Communicator& communicator) -> base::Result<void> {
    kernels::CpuDevice device(1);
    const auto result = replay(run, {}, device, communicator);
    if (!result) return tl::unexpected(result.error());
    return {};
  });
  for (const auto& result : results) {
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("24 does not divide by 5 ranks"), std::string::npos);
  }
}

TEST(ReplayRefusals, AnErrorAboveItsBoundDoesNotPassNorDoesNaN) {
  EXPECT_TRUE((ReplayError{"x", 1e-6, 1e-5, true}).passed());
  EXPECT_FALSE((ReplayError{"x", 2e-5, 1e-5, true}).passed());
  EXPECT_FALSE((ReplayError{"x", std::nan(""), 1e-5, true}).passed());
}

}  // namespace
}  // namespace attnbench::run
