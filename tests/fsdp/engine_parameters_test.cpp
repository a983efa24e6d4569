#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "bench/base/rng.hpp"
#include "fsdp/engine.hpp"
#include "fsdp/model.hpp"
#include "kernels/device/cpu_device.hpp"
#include "training.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;
using tests::expect_world;
using tests::kSeq;
using tests::kSteps;
using tests::kVocab;
using tests::largest_difference;
using tests::random_tokens;
using tests::run_of;
using tests::Tokens;
using tests::toy_model;
using tests::train;
using tests::Training;
using tests::Trajectory;
using tests::WorldOptions;

TEST(Engine, TiedWeightsHaveOneValueAndTheSumOfBothGradients) {
  const Model tied = toy_model({}, true);
  const Trajectory one = train(tied, run_of(1));
  EXPECT_EQ(one.weights.count("head.weight"), 0u);
  for (const Strategy strategy : {Strategy::kFsdp, Strategy::kShardGradOp, Strategy::kDdp}) {
    for (const int world : {2, 3}) {
      for (const int micro_batches : {1, 2}) {
        Training run = run_of(world);
        run.options.strategy = strategy;
        run.options.micro_batches = micro_batches;
        if (strategy == Strategy::kDdp) run.options.accumulation = Accumulation::kUnsharded;
        EXPECT_LT(largest_difference(one, train(tied, run)), 2e-5) << to_string(strategy) << " at " << world;
      }
    }
  }
  // An untied head moves apart from the table: the two models are not the same.
  const Trajectory untied = train(toy_model(), run_of(1));
  EXPECT_NE(untied.weights.at("embedding.weight"), one.weights.at("embedding.weight"));
}

/// A model with a frozen layer, and layers of which one tensor is frozen.
Model frozen_model() {
  const tests::ToyShape shape;
  Model model;
  model.layers.push_back(tests::embedding("embedding", shape));
  model.layers.push_back(tests::affine("a", shape.width, true, false));
  model.layers.push_back(tests::affine("b", shape.width, true, true));
  model.layers.push_back(tests::affine("c", shape.width, false, true));
  model.layers.push_back(tests::head("head", shape));
  return model;
}

TEST(Engine, FrozenParametersDoNotMoveAndTheOthersDo) {
  const Model model = frozen_model();
  Training run = run_of(1);
  const Trajectory one = train(model, run);
  std::map<std::string, std::vector<float>> fresh;
  for (const auto& layer : model.layers) {
    for (const ParamSpec& spec : layer->params()) {
      fresh[spec.name].resize(static_cast<std::size_t>(spec.elements()));
      init_values(spec, 1, 0, fresh[spec.name]);
      EXPECT_EQ(one.weights.at(spec.name) == fresh[spec.name], spec.frozen) << spec.name;
    }
  }
  for (const Strategy strategy : {Strategy::kFsdp, Strategy::kShardGradOp, Strategy::kDdp}) {
    run = run_of(3);
    run.options.strategy = strategy;
    EXPECT_LT(largest_difference(one, train(model, run)), 2e-5);
  }
}

TEST(Engine, FrozenLayersTakePartInNoReductionAndHaveNoGradient) {
  expect_world(2, {}, [&](int, Communicator& communicator) -> Result<void> {
    kernels::CpuDevice device(1);
    const Model model = frozen_model();
    auto engine = Engine::make(model, {2, kSeq}, {}, device, communicator);
    if (!engine) return tl::unexpected(engine.error());
    // Embedding, a's bias, c's weight and the head move, each 256 padded elements of which a rank keeps 128; three
    // frozen parts of as many have weights alone.
    EXPECT_EQ((*engine)->ledger()[Category::kGradShard], 4u * 4 * 128);
    EXPECT_EQ((*engine)->ledger()[Category::kOptimizer], 8u * 4 * 128);
    EXPECT_EQ((*engine)->ledger()[Category::kMaster], 4u * (4 + 3) * 128);
    for (const Action& action : (*engine)->schedule().actions) {
      EXPECT_FALSE(action.kind == ActionKind::kReduce && action.layer == 2);
    }
    std::int64_t begin = 0;
    EXPECT_FALSE((*engine)->read_kept("b.weight", Engine::Kept::kGradient, begin));
    return {};
  });
}

TEST(Engine, EveryRankReportsTheSameLossAndNorm) {
  std::vector<std::pair<double, double>> seen(4);
  const Model model = toy_model();
  expect_world(4, {}, [&](int rank, Communicator& communicator) -> Result<void> {
    kernels::CpuDevice device(1);
    EngineOptions options;
    options.clip_norm = 1;
    auto engine = Engine::make(model, {2, kSeq}, options, device, communicator);
    if (!engine) return tl::unexpected(engine.error());
    if (auto ok = (*engine)->initialize(1); !ok) return ok;
    const Tokens tokens = random_tokens(static_cast<std::uint64_t>(rank), 2, kSeq, kVocab);
    const TokenBatch batch = tokens.rows(0, {2, kSeq});
    const auto report = (*engine)->step({&batch, 1});
    if (!report) return tl::unexpected(report.error());
    seen[static_cast<std::size_t>(rank)] = {report->loss, *report->gradient_norm};
    return {};
  });
  for (const auto& numbers : seen) EXPECT_EQ(numbers, seen[0]);
}

TEST(Engine, OddAndTinySizesWorkAtEveryWorldSize) {
  const tests::ToyShape shape{.vocab = kVocab, .width = 1, .hidden = 3};
  const Model model = toy_model(shape);
  Training run = run_of(1);
  run.batch = 840;  // divisible by 1 to 8
  const Trajectory one = train(model, run);
  for (int world = 2; world <= 8; ++world) {
    run.world = world;
    EXPECT_LT(largest_difference(one, train(model, run)), 5e-5) << world;
  }
}

/// Sleeps at random where a channel begins and ends a collective.
class Delays : public Observer {
 public:
  void began(const Signature& signature) override { nap(signature.chain); }
  void ended(const CollectiveSpan& span) override { nap(static_cast<std::uint64_t>(span.label.size()) + count_++); }
  void failed(const base::Error&) override {}

 private:
  static void nap(std::uint64_t seed) {
    std::this_thread::sleep_for(std::chrono::microseconds(base::mix64(seed) % 700));
  }
  std::atomic<std::uint64_t> count_{0};
};

TEST(Engine, DelaysMakeNoDifferenceToABit) {
  Delays delays;
  for (const Strategy strategy : {Strategy::kFsdp, Strategy::kShardGradOp, Strategy::kDdp}) {
    for (const int micro_batches : {1, 2}) {
      Training run = run_of(3);
      run.options.strategy = strategy;
      run.options.micro_batches = micro_batches;
      run.options.reduce_dtype = Dtype::kBf16;  // through the buffers of rounded gradients too
      run.options.poison = true;
      if (strategy == Strategy::kDdp) run.options.accumulation = Accumulation::kUnsharded;
      const Model model = toy_model({}, true);
      const Trajectory prompt = train(model, run);
      run.world_options.transport.observer = &delays;
      for (int round = 0; round < 5; ++round) EXPECT_EQ(train(model, run), prompt) << to_string(strategy);
    }
  }
}

TEST(Engine, DdpRanksKeepTheSameWeightsToTheBit) {
  std::vector<std::vector<float>> weights(4);
  const Model model = toy_model();
  expect_world(4, {}, [&](int rank, Communicator& communicator) -> Result<void> {
    kernels::CpuDevice device(1);
    EngineOptions options;
    options.strategy = Strategy::kDdp;
    auto engine = Engine::make(model, {2, kSeq}, options, device, communicator);
    if (!engine) return tl::unexpected(engine.error());
    if (auto ok = (*engine)->initialize(1); !ok) return ok;
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Tokens tokens = random_tokens(10 * step + static_cast<std::uint64_t>(rank), 2, kSeq, kVocab);
      const TokenBatch batch = tokens.rows(0, {2, kSeq});
      const auto report = (*engine)->step({&batch, 1});
      if (!report) return tl::unexpected(report.error());
    }
    std::int64_t begin = 0;
    const auto kept = (*engine)->read_kept("linear1.weight", Engine::Kept::kWeight, begin);
    if (!kept) return tl::unexpected(kept.error());
    weights[static_cast<std::size_t>(rank)] = *kept;
    return {};
  });
  for (const auto& other : weights) EXPECT_EQ(other, weights[0]);
  EXPECT_EQ(weights[0].size(), 60u);
}

TEST(Engine, ARankWithAnotherModelEndsTheRunOnAllRanks) {
  WorldOptions options;
  options.transport.deadline_s = 5;
  const auto results = tests::run_world(2, options, [&](int rank, Communicator& communicator) -> Result<void> {
    kernels::CpuDevice device(1);
    const Model model = toy_model({.vocab = kVocab, .width = 6, .hidden = rank == 0 ? 10 : 200});
    auto engine = Engine::make(model, {2, kSeq}, {}, device, communicator);
    if (!engine) return tl::unexpected(engine.error());
    if (auto ok = (*engine)->initialize(1); !ok) return ok;
    const Tokens tokens = random_tokens(1, 2, kSeq, kVocab);
    const TokenBatch batch = tokens.rows(0, {2, kSeq});
    const auto report = (*engine)->step({&batch, 1});
    if (!report) return tl::unexpected(report.error());
    return {};
  });
  for (const auto& result : results) {
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("linear1"), std::string::npos) << result.error().message;
  }
}

TEST(Engine, WrongOptionsAreRefusedWithWhatToType) {
  const auto refusal = [](const EngineOptions& options) {
    std::string message;
    const Model model = toy_model();
    tests::run_world(1, {}, [&](int, Communicator& communicator) -> Result<void> {
      kernels::CpuDevice device(1);
      const auto engine = Engine::make(model, {1, kSeq}, options, device, communicator);
      message = engine ? "accepted" : engine.error().message;
      return {};
    });
    return message;
  };
  EngineOptions options;
  options.prefetch = -1;
  EXPECT_NE(refusal(options).find("--prefetch"), std::string::npos);
  options = {};
  options.strategy = Strategy::kDdp;
  options.micro_batches = 2;
  EXPECT_NE(refusal(options).find("--accumulation unsharded"), std::string::npos);
  options = {};
  options.param_dtype = Dtype::kBf16;
  options.reduce_dtype = Dtype::kFp16;
  EXPECT_NE(refusal(options).find("bf16"), std::string::npos);
}
}  // namespace
}  // namespace attnbench::fsdp
