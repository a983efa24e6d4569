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

// pytorch#104690, #91167, pytorch/xla PR#5484: frozen beside trainable is allowed, has no gradient, and stays as it is.
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
// llm.c zero.cuh, PyTorch's flat parameters: odd sizes must neither turn sharding off nor break it.
// pytorch PR#180665, PR#140044, Megatron-LM PR#5972: buffers that are reused too early show only when something is
// late.
// A rank whose layers differ: an error on every rank that names a layer, no hang.
}  // namespace
}  // namespace attnbench::fsdp
