#include "fsdp/engine.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "bench/base/rng.hpp"
#include "fsdp/model.hpp"
#include "kernels/device/cpu_device.hpp"
#include "toy.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;
using tests::expect_world;
using tests::random_tokens;
using tests::Tokens;
using tests::toy_model;
using tests::WorldOptions;

constexpr std::int64_t kSeq = 5;
constexpr std::int64_t kVocab = 11;
constexpr int kSteps = 3;

/// A run as the ranks see it together: all losses and norms, all weights at the end.
struct Trajectory {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<bool> skipped;
  std::map<std::string, std::vector<float>> weights;

  bool operator==(const Trajectory&) const = default;
};

struct Training {
  int world = 1;
  std::int64_t batch = 8;  // of all ranks and micro-batches together
  EngineOptions options;
  WorldOptions world_options;
  std::uint64_t seed = 7;
};

/// Trains for kSteps; rank r of N with M micro-batches takes rows (m N + r) b of each step's batch.
Trajectory train(const Model& model, const Training& run) {
  Trajectory result;
  const Layout layout = *make_layout(model, 1, false);
  for (const Unit& unit : layout.units) {
    for (const Placement& param : unit.params) {
      if (!param.tied) result.weights[param.spec.name].resize(static_cast<std::size_t>(param.elements));
    }
  }
  const TokenShape shape{run.batch / (run.world * run.options.micro_batches), kSeq};
  expect_world(run.world, run.world_options, [&](int rank, Communicator& communicator) -> Result<void> {
    kernels::CpuDevice device(1);
    auto engine = Engine::make(model, shape, run.options, device, communicator);
    if (!engine) return tl::unexpected(engine.error());
    if (auto ok = (*engine)->initialize(1); !ok) return ok;
    for (int step = 0; step < kSteps; ++step) {
      const Tokens tokens = random_tokens(run.seed + static_cast<std::uint64_t>(step), run.batch, kSeq, kVocab);
      std::vector<TokenBatch> batches;
      for (int micro = 0; micro < run.options.micro_batches; ++micro) {
        batches.push_back(tokens.rows((micro * run.world + rank) * shape.batch, shape));
      }
      const auto report = (*engine)->step(batches);
      if (!report) return tl::unexpected(report.error());
      const auto clean = (*engine)->padding_is_zero();
      EXPECT_TRUE(clean && *clean) << "padding is no longer 0";
      if (rank != 0) continue;
      result.losses.push_back(report->loss);
      result.norms.push_back(report->gradient_norm.value_or(-1));
      result.skipped.push_back(report->skipped);
    }
    for (auto& [name, values] : result.weights) {
      if (run.options.strategy == Strategy::kDdp && rank != 0) continue;
      if (auto ok = tests::write_kept(**engine, name, Engine::Kept::kWeight, values); !ok) return ok;
    }
    return {};
  });
  return result;
}

double largest_difference(const Trajectory& a, const Trajectory& b) {
  double largest = 0;
  for (const auto& [name, values] : a.weights) {
    const std::vector<float>& other = b.weights.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, static_cast<double>(std::fabs(values[i] - other[i])));
    }
  }
  for (std::size_t i = 0; i < a.losses.size(); ++i) largest = std::max(largest, std::fabs(a.losses[i] - b.losses[i]));
  return largest;
}

Training run_of(int world, OptimizerKind kind = OptimizerKind::kAdamW) {
  Training run;
  run.world = world;
  run.batch = 24;
  run.options.optimizer.kind = kind;
  run.options.optimizer.lr = kind == OptimizerKind::kSgd ? 0.1 : 0.01;
  return run;
}

TEST(Engine, TrainsToALowerLoss) {
  Training run = run_of(1);
  const Trajectory trajectory = train(toy_model(), run);
  EXPECT_LT(trajectory.losses.back(), trajectory.losses.front() + 0.5);
  EXPECT_GT(trajectory.losses.front(), 0.5);
}

// The same data on one rank, summed in rank order: bit for bit, at every world size, in both optimizers.
TEST(Engine, OrderedReductionIsBitEqualToOneRankThatAddsMicroBatchesInTurn) {
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    for (const int world : {2, 3, 4, 5, 7, 8}) {
      Training many = run_of(world, kind);
      many.batch = 2 * world;
      Training one = many;
      one.world = 1;
      one.options.micro_batches = world;
      const Trajectory a = train(toy_model(), many), b = train(toy_model(), one);
      EXPECT_EQ(a.weights, b.weights) << world;
    }
  }
}

TEST(Engine, EveryWorldSizeMatchesOneRankOnTheWholeBatch) {
  const Trajectory one = train(toy_model(), run_of(1));
  for (const int world : {2, 3, 4, 8}) {
    EXPECT_LT(largest_difference(one, train(toy_model(), run_of(world))), 2e-5) << world;
  }
}

TEST(Engine, PrefetchDepthMakesNoDifferenceToABit) {
  Training run = run_of(3);
  run.options.report_norm = true;
  const Trajectory two = train(toy_model(), run);
  for (const int prefetch : {0, 1, 3, 8}) {
    run.options.prefetch = prefetch;
    EXPECT_EQ(train(toy_model(), run), two) << prefetch;
  }
}

TEST(Engine, StrategiesAgreeToTheBit) {
  for (const int world : {1, 2, 4}) {
    Training run = run_of(world);
    const Trajectory sharded = train(toy_model(), run);
    for (const Strategy strategy : {Strategy::kShardGradOp, Strategy::kDdp}) {
      run.options.strategy = strategy;
      EXPECT_EQ(train(toy_model(), run), sharded) << to_string(strategy) << " at " << world;
    }
  }
}

TEST(Engine, LowerPrecisionStaysNearFp32InEveryStrategyAndReduction) {
  const Trajectory exact = train(toy_model(), run_of(2));
  for (const Strategy strategy : {Strategy::kFsdp, Strategy::kShardGradOp, Strategy::kDdp}) {
    for (const Dtype param : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
      for (const Dtype reduce : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
        if (param != Dtype::kFp32 && reduce != Dtype::kFp32 && reduce != param) continue;
        Training run = run_of(2);
        run.options.strategy = strategy;
        run.options.param_dtype = param;
        run.options.reduce_dtype = reduce;
        const Trajectory rounded = train(toy_model(), run);
        for (std::size_t i = 0; i < exact.losses.size(); ++i) {
          EXPECT_NEAR(rounded.losses[i] / exact.losses[i], 1.0, 1e-2)
              << to_string(strategy) << " " << to_string(param) << " " << to_string(reduce);
        }
      }
    }
  }
}

TEST(Engine, MicroBatchesAreOneLargerBatchInBothModes) {
  const Trajectory one = train(toy_model(), run_of(2));
  for (const Accumulation accumulation : {Accumulation::kSharded, Accumulation::kUnsharded}) {
    for (const Dtype reduce : {Dtype::kFp32, Dtype::kBf16}) {
      Training run = run_of(2);
      run.options.micro_batches = 3;
      run.options.accumulation = accumulation;
      run.options.reduce_dtype = reduce;
      EXPECT_LT(largest_difference(one, train(toy_model(), run)), reduce == Dtype::kFp32 ? 2e-5 : 2e-2);
    }
  }
}

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

// pytorch#104690, #91167, pytorch/xla PR#5484: frozen beside trainable is allowed, has no gradient, and stays as it is.
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

// pytorch#170862, #72548, transformers PR#46113: the norm is of the whole gradient, and gradients are really scaled.
TEST(Engine, ClippingUsesTheNormOfTheWholeGradientOnEveryRank) {
  Training run = run_of(1, OptimizerKind::kSgd);
  run.options.optimizer.weight_decay = 0;
  run.options.report_norm = true;
  const Trajectory free = train(toy_model(), run);
  const double clip = free.norms[0] / 4;
  run.options.clip_norm = clip;
  const Trajectory one = train(toy_model(), run);
  EXPECT_NE(one.weights, free.weights);
  for (const int world : {2, 3, 8}) {
    Training sharded = run;
    sharded.world = world;
    const Trajectory clipped = train(toy_model(), sharded);
    EXPECT_LT(largest_difference(one, clipped), 2e-5);
    for (int i = 0; i < kSteps; ++i) {
      EXPECT_NEAR(clipped.norms[static_cast<std::size_t>(i)], one.norms[static_cast<std::size_t>(i)], 1e-5);
    }
  }
}

// fp16: a loss scale that overflows is halved, the step is skipped, and weights stay.
TEST(Engine, AnOverflowInFp16SkipsTheStepAndHalvesTheScale) {
  Training run = run_of(2);
  run.options.param_dtype = Dtype::kFp16;
  run.options.reduce_dtype = Dtype::kFp16;
  run.options.loss_scale = 3e38;
  const Trajectory trajectory = train(toy_model(), run);
  EXPECT_TRUE(trajectory.skipped.front());
  std::vector<float> fresh(trajectory.weights.at("linear1.weight").size());
  init_values(toy_model().layers[2]->params()[0], 1, 0, fresh);
  EXPECT_EQ(trajectory.weights.at("linear1.weight"), fresh) << "three steps at this scale all overflow";
}

// DeepSpeed#3570: weights outside the window of a layer are not there; poisoned, a use would end in NaN.
TEST(Engine, NothingReadsWeightsAfterTheyWereDropped) {
  for (const int prefetch : {0, 1, 2}) {
    Training run = run_of(3);
    run.options.prefetch = prefetch;
    run.options.micro_batches = 2;
    const Trajectory clean = train(toy_model(), run);
    run.options.poison = true;
    EXPECT_EQ(train(toy_model(), run), clean);
  }
}

// nccl#434, #855: results that every rank has are the same bits on every rank.
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

// llm.c zero.cuh, PyTorch's flat parameters: odd sizes must neither turn sharding off nor break it.
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

// pytorch PR#180665, PR#140044, Megatron-LM PR#5972: buffers that are reused too early show only when something is
// late.
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

// A rank whose layers differ: an error on every rank that names a layer, no hang.
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
