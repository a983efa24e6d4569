// Training on a GPU: the golden runs at several world sizes, whose ranks share it; equal bits where they are promised;
// memory; and gathers that run under the layer before.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <stdexcept>

#include "bench/run/fsdp_local.hpp"
#include "bench/run/fsdp_replay.hpp"
#include "fsdp/nccl.hpp"
#include "kernels/catalog.hpp"
#include "tests/gpu/gpu_case.hpp"
#include "tests/kernels/golden_case.hpp"

namespace attnbench::run {
namespace {

using fsdp::Accumulation;
using fsdp::EngineOptions;
using fsdp::Strategy;
using kernels::Dtype;

measure::Trajectory load(const std::string& name) {
  const auto file =
      measure::SafeTensors::load((kernels::golden_folder() / ("training_" + name + ".safetensors")).string());
  if (!file) throw std::runtime_error(file.error().message);
  auto run = measure::read_trajectory(*file);
  if (!run) throw std::runtime_error(run.error().message);
  return std::move(*run);
}

FsdpCase world_of(int size) {
  FsdpCase c;
  c.device = "cuda:0";
  c.world = size;
  c.transport.deadline_s = 30;
  return c;
}

class GpuTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::gpu() == nullptr) GTEST_SKIP() << kernels::why_no_gpu();
  }
};

/// Replays on ranks that share the GPU and expects every comparison to pass.
void expect_parity(const measure::Trajectory& run, int world, const EngineOptions& options,
                   const std::string& transport = "local") {
  std::mutex mutex;
  std::vector<ReplayError> errors;
  FsdpCase c = world_of(world);
  c.transport_word = transport;
  const auto end = run_local_world(
      c, [&](int rank, kernels::Device& device, fsdp::Communicator& communicator) -> base::Result<void> {
        auto result = replay(run, options, device, communicator);
        if (!result) return tl::unexpected(result.error());
        const std::scoped_lock lock(mutex);
        if (rank == 0) errors = std::move(*result);
        return {};
      });
  ASSERT_TRUE(end.result) << end.result.error().message;
  ASSERT_FALSE(end.stuck);
  EXPECT_EQ(errors.size(), 2 * (run.losses.size() + run.init.size()));
  for (const ReplayError& error : errors) {
    EXPECT_TRUE(error.passed()) << error.what << ": " << error.error << ", allowed " << error.allowed << ", world "
                                << world << ", prefetch " << options.prefetch << ", "
                                << kernels::to_string(options.param_dtype);
  }
}

TEST_F(GpuTraining, FollowsTheFilesAtEveryWorldSizeAndPrefetchDepth) {
  for (const char* name : {"small", "clip"}) {
    const auto run = load(name);
    for (const int world : {1, 2, 3, 4, 8}) {
      for (const int prefetch : {0, 2}) {
        EngineOptions options;
        options.prefetch = prefetch;
        expect_parity(run, world, options);
      }
    }
  }
}

TEST_F(GpuTraining, FollowsTheFilesCheckpointedAndInEveryStrategy) {
  const auto run = load("small");
  for (const Strategy strategy : {Strategy::kFsdp, Strategy::kShardGradOp, Strategy::kDdp}) {
    EngineOptions options;
    options.strategy = strategy;
    options.checkpoint = true;
    options.micro_batches = 3;
    options.accumulation = Accumulation::kUnsharded;
    expect_parity(run, 4, options);
    if (strategy == Strategy::kDdp) continue;
    options.accumulation = Accumulation::kSharded;
    expect_parity(run, 2, options);
  }
}

TEST_F(GpuTraining, StaysWithinAHundredthOfTheLossesIn16Bits) {
  const auto run = load("small");
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
    for (const Dtype reduce : {Dtype::kFp32, dtype}) {
      for (const int world : {1, 2}) {
        EngineOptions options;
        options.param_dtype = dtype;
        options.reduce_dtype = reduce;
        expect_parity(run, world, options);
      }
    }
  }
}

TEST_F(GpuTraining, NcclFollowsTheFilesOnEveryGpuThereIs) {
  if (const auto version = fsdp::nccl_version(); !version) GTEST_SKIP() << version.error().message;
  const auto devices = (*kernels::cuda_backend())->devices();
  ASSERT_TRUE(devices);
  for (const char* name : {"small", "clip"}) {
    const auto run = load(name);
    for (const int world : {1, 2, 4, 8}) {
      if (static_cast<std::size_t>(world) > devices->size()) continue;
      for (const Strategy strategy : {Strategy::kFsdp, Strategy::kDdp}) {
        EngineOptions options;
        options.strategy = strategy;
        expect_parity(run, world, options, "nccl");
        options.param_dtype = Dtype::kBf16;
        options.reduce_dtype = Dtype::kBf16;
        expect_parity(run, world, options, "nccl");
      }
    }
  }
}

TEST_F(GpuTraining, ARankThatLeavesEndsTheOthersWithItsNumberWithinTheDeadline) {
  const auto run = load("small");
  FsdpCase c = world_of(2);
  c.transport.deadline_s = 1;
  const auto begin = fsdp::Clock::now();
  const auto end = run_local_world(
      c, [&](int rank, kernels::Device& device, fsdp::Communicator& communicator) -> base::Result<void> {
        if (rank == 1) return {};
        const auto result = replay(run, {}, device, communicator);
        if (!result) return tl::unexpected(result.error());
        return {};
      });
  ASSERT_FALSE(end.result);
  EXPECT_FALSE(end.stuck);
  EXPECT_NE(end.result.error().message.find("rank 1"), std::string::npos) << end.result.error().message;
  EXPECT_LT(std::chrono::duration<double>(fsdp::Clock::now() - begin).count(), 10);
}

/// What a run of a few steps leaves behind.
struct Result {
  std::vector<double> losses;
  std::vector<float> weights;
  std::int64_t replayed = 0;
  std::vector<fsdp::TimelineEvent> timeline;
  fsdp::MemoryUse ledger, predicted;
  std::int64_t grown = 0;
};

Result train(int world, const EngineOptions& options, const std::string& size, const fsdp::TokenShape& shape, int steps,
             fsdp::Observer* observer = nullptr) {
  std::mutex mutex;
  Result result;
  FsdpCase c = world_of(world);
  c.transport.observer = observer;
  const auto end = run_local_world(
      c, [&](int rank, kernels::Device& device, fsdp::Communicator& communicator) -> base::Result<void> {
        const auto free = static_cast<std::int64_t>(device.memory_free_bytes());
        const auto model = fsdp::make_model(*fsdp::model_size(size));
        auto engine = fsdp::Engine::make(*model, shape, options, device, communicator);
        if (!engine) return tl::unexpected(engine.error());
        if (auto ok = (*engine)->initialize(3); !ok) return ok;
        const auto part = static_cast<std::size_t>(shape.tokens());
        std::vector<std::int32_t> tokens(part * static_cast<std::size_t>(options.micro_batches * world));
        for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>((i * 7919 + 13) % 10000);
        std::vector<fsdp::TokenBatch> batches;
        for (int micro = 0; micro < options.micro_batches; ++micro) {
          const std::int32_t* const mine = tokens.data() + part * static_cast<std::size_t>(micro * world + rank);
          batches.push_back({mine, mine});
        }
        std::vector<double> losses;
        for (int step = 0; step < steps; ++step) {
          const auto report = (*engine)->step(batches);
          if (!report) return tl::unexpected(report.error());
          losses.push_back(report->loss);
        }
        std::int64_t begin = 0;
        auto weights = (*engine)->read_kept("layers.1.ffn.w1.weight", fsdp::Engine::Kept::kWeight, begin);
        if (!weights) return tl::unexpected(weights.error());
        const std::scoped_lock lock(mutex);
        if (rank != 0) return {};
        result = {losses,
                  std::move(*weights),
                  (*engine)->replayed(),
                  {},
                  (*engine)->ledger(),
                  (*engine)->predicted(),
                  free - static_cast<std::int64_t>(device.memory_free_bytes())};
        result.timeline.assign((*engine)->timeline().begin(), (*engine)->timeline().end());
        return {};
      });
  EXPECT_TRUE(end.result) << end.result.error().message;
  return result;
}

TEST_F(GpuTraining, AReplayedStepHasTheBitsOfOneThatIsEnqueued) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    EngineOptions options;
    options.param_dtype = dtype;
    options.clip_norm = 1;
    const Result replayed = train(1, options, "tiny", {2, 64}, 6);
    options.replay = false;
    const Result enqueued = train(1, options, "tiny", {2, 64}, 6);
    EXPECT_EQ(replayed.replayed, 4);
    EXPECT_EQ(enqueued.replayed, 0);
    EXPECT_EQ(replayed.losses, enqueued.losses);
    EXPECT_EQ(replayed.weights, enqueued.weights);
    EXPECT_LT(replayed.losses.back(), replayed.losses.front());
  }
}

TEST_F(GpuTraining, RanksHaveTheBitsOfOneThatAddsTheirPartsInTurnAtAnyDepth) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
    for (const int world : {2, 4, 8}) {
      EngineOptions options;
      options.param_dtype = dtype;
      options.micro_batches = world;
      const Result one = train(1, options, "tiny", {2, 64}, 4);
      options.micro_batches = 1;
      for (const int prefetch : {0, 1, 2}) {
        options.prefetch = prefetch;
        EXPECT_EQ(train(world, options, "tiny", {2, 64}, 4).losses, one.losses) << world << ", " << prefetch;
      }
    }
  }
}

TEST_F(GpuTraining, TheDeviceGivesWhatTheLedgerSays) {
  EngineOptions options;
  options.param_dtype = Dtype::kBf16;
  (void)train(1, options, "tiny", {2, 64}, 3);  // libraries and modules are loaded
  const Result small = train(1, options, "small", {8, 512}, 3);
  EXPECT_EQ(small.ledger, small.predicted);
  const auto ledger = static_cast<double>(small.ledger.total());
  EXPECT_NEAR(static_cast<double>(small.grown), ledger, 0.1 * ledger);
}

/// Gathers of one rank as they were on the device.
class Gathers : public fsdp::Observer {
 public:
  void began(const fsdp::Signature&) override {}
  void failed(const base::Error&) override {}
  void ended(const fsdp::CollectiveSpan& span) override {
    const std::scoped_lock lock(mutex_);
    if (span.kind == fsdp::CollectiveKind::kAllGather) spans_.push_back(span);
  }
  const std::vector<fsdp::CollectiveSpan>& spans() const { return spans_; }

 private:
  std::mutex mutex_;
  std::vector<fsdp::CollectiveSpan> spans_;
};

TEST_F(GpuTraining, GathersRunUnderTheLayerBefore) {
  Gathers gathers;
  EngineOptions options;
  options.param_dtype = Dtype::kBf16;
  const Result run = train(2, options, "small", {8, 512}, 4, &gathers);
  int under = 0, forwards = 0;
  for (const fsdp::TimelineEvent& event : run.timeline) {
    if (event.action.kind != fsdp::ActionKind::kForward) continue;
    ++forwards;
    for (const fsdp::CollectiveSpan& span : gathers.spans()) {
      if (span.joined < event.end && span.finished > event.begin) {
        ++under;
        break;
      }
    }
  }
  EXPECT_EQ(forwards, 14);
  // All but the last few, for which nothing is left to gather.
  EXPECT_GE(under, 8);
}

}  // namespace
}  // namespace attnbench::run
