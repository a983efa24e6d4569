#include "fsdp/memory.hpp"

#include <gtest/gtest.h>

#include "fsdp/arena.hpp"
#include "kernels/device/cpu_device.hpp"
#include "toy.hpp"

namespace attnbench::fsdp {
namespace {

using tests::toy_model;

TEST(MemoryFormula, ByHandForTwoUnitsOnTwoRanks) {
  Layout layout;
  layout.world = 2;
  layout.units.resize(2);
  layout.units[0].trainable = {.padded = 1024, .part = 512, .kept = 512};
  layout.units[1].trainable = {.padded = 2048, .part = 1024, .kept = 1024};
  layout.units[1].frozen = {.offset = 2048, .padded = 256, .part = 128, .kept = 128};
  layout.trainable_kept = 1536;
  layout.frozen_kept = 128;
  std::vector<LayerPlan> plans(2);
  plans[0] = {.out_elements = 100, .saved_bytes = 300, .workspace_bytes = 10, .backward_reads_input = false};
  plans[1] = {.in_elements = 100, .saved_bytes = 256, .workspace_bytes = 700};
  EngineOptions options;
  options.param_dtype = Dtype::kBf16;
  options.prefetch = 0;
  const MemoryUse use = predict_memory(layout, plans, {2, 10}, options, 1);
  EXPECT_EQ(use[Category::kMaster], 4u * (1536 + 128));
  EXPECT_EQ(use[Category::kOptimizer], 8u * 1536);
  EXPECT_EQ(use[Category::kGradShard], 4u * 1536);
  EXPECT_EQ(use[Category::kGathered], 2u * 2304);   // one slot of the larger unit, in bf16
  EXPECT_EQ(use[Category::kGradients], 4u * 2048);  // one slot of the larger trainable part, in fp32
  EXPECT_EQ(use[Category::kReduce], 0u);
  EXPECT_EQ(use[Category::kScratch], 4u * 1024);  // one part of the other rank
  EXPECT_EQ(use[Category::kSaved], 512u + 256);
  EXPECT_EQ(use[Category::kActivations], 256u + 2 * 256);  // 200 bytes kept, and two gradients
  EXPECT_EQ(use[Category::kWorkspace], 768u);
  EXPECT_EQ(use[Category::kInputs], 256u + 256 + 256 + 256 + 256);
  options.prefetch = 1;
  const MemoryUse ahead = predict_memory(layout, plans, {2, 10}, options, 1);
  EXPECT_EQ(ahead[Category::kGathered], 2u * 2 * 2304);
  EXPECT_EQ(ahead[Category::kGradients], 2u * 4 * 2048);
}

/// Every strategy, type, depth and way to accumulate.
std::vector<EngineOptions> all_options() {
  std::vector<EngineOptions> all;
  for (const Strategy strategy : {Strategy::kFsdp, Strategy::kShardGradOp, Strategy::kDdp}) {
    for (const Dtype param : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
      for (const Dtype reduce : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
        if (param != Dtype::kFp32 && reduce != Dtype::kFp32 && reduce != param) continue;
        for (const int prefetch : {0, 1, 2, 9}) {
          for (const int micro : {1, 3}) {
            EngineOptions options;
            options.strategy = strategy;
            options.param_dtype = param;
            options.reduce_dtype = reduce;
            options.prefetch = prefetch;
            options.micro_batches = micro;
            options.accumulation = strategy == Strategy::kDdp ? Accumulation::kUnsharded : Accumulation::kSharded;
            options.optimizer.kind = prefetch == 1 ? OptimizerKind::kSgd : OptimizerKind::kAdamW;
            all.push_back(options);
            options.accumulation = Accumulation::kUnsharded;
            all.push_back(options);
          }
        }
      }
    }
  }
  return all;
}

TEST(Ledger, EqualsTheFormulaInEveryCategoryAndTheDeviceCountsTheSame) {
  for (const bool tied : {false, true}) {
    const Model model = toy_model({}, tied);
    for (const EngineOptions& options : all_options()) {
      tests::expect_world(3, {}, [&](int, Communicator& communicator) -> base::Result<void> {
        kernels::CpuDevice device(1);
        const auto engine = Engine::make(model, {1, 4}, options, device, communicator);
        if (!engine) return tl::unexpected(engine.error());
        EXPECT_EQ((*engine)->ledger(), (*engine)->predicted());
        EXPECT_EQ(device.allocated_bytes(), (*engine)->predicted().total()) << describe((*engine)->predicted());
        return {};
      });
    }
  }
}

base::Result<MemoryUse> use_at(const Model& model, int world, const EngineOptions& options) {
  base::Result<MemoryUse> use = MemoryUse{};
  tests::expect_world(world, {}, [&](int rank, Communicator& communicator) -> base::Result<void> {
    kernels::CpuDevice device(1);
    const auto engine = Engine::make(model, {1, 4}, options, device, communicator);
    if (!engine) return tl::unexpected(engine.error());
    if (rank == 0) use = (*engine)->ledger();
    return {};
  });
  return use;
}

// pytorch#82001, #160320: what a rank keeps falls as 1 / N, to the byte where the padding does not change.
TEST(Ledger, WeightsGradientsAndOptimizerStateAreOneNthToTheByte) {
  // Sizes that every world of up to 8 splits without further padding: multiples of 8 * 128 elements.
  tests::ToyShape shape{.vocab = 64, .width = 64, .hidden = 128};
  Model model;
  model.layers.push_back(tests::embedding("embedding", shape));
  model.layers.push_back(tests::linear("up", shape.width, shape.hidden));
  model.layers.push_back(tests::linear("down", shape.hidden, shape.width));
  model.layers.push_back(tests::head("head", shape));
  const auto whole = use_at(model, 1, {});
  for (const int world : {2, 4, 8}) {
    const auto part = use_at(model, world, {});
    for (const Category category : {Category::kMaster, Category::kOptimizer, Category::kGradShard}) {
      EXPECT_EQ((*part)[category] * static_cast<std::size_t>(world), (*whole)[category]) << to_string(category);
    }
    EXPECT_EQ((*part)[Category::kGathered], (*whole)[Category::kGathered]);
  }
  const std::size_t parameters = 64 * 64 + 64 * 128 + 128 * 64 + 64 * 64;
  EXPECT_EQ((*whole)[Category::kMaster], 4 * parameters);
  EXPECT_EQ((*whole)[Category::kOptimizer], 8 * parameters);
}

// accelerate PR#2531: accumulating without reductions costs the memory of all gradients, and the formula says so.
TEST(Ledger, UnshardedAccumulationCostsAllGradients) {
  const Model model = toy_model();
  EngineOptions options;
  options.micro_batches = 2;
  const auto sharded = use_at(model, 2, options);
  options.accumulation = Accumulation::kUnsharded;
  const auto unsharded = use_at(model, 2, options);
  const auto layout = make_layout(model, 2, false);
  std::size_t all = 0;
  for (const Unit& unit : layout->units) all += static_cast<std::size_t>(unit.trainable.padded) * 4;
  EXPECT_EQ((*unsharded)[Category::kGradients], all);
  EXPECT_LT((*sharded)[Category::kGradients], all);
}

// pytorch PR#83917: unlimited gathers held everything; here the prefetch depth is the limit.
TEST(Ledger, GatheredWeightsAreBoundedByThePrefetchDepth) {
  const tests::ToyShape shape{.vocab = 8, .width = 16};
  Model model;
  model.layers.push_back(tests::embedding("embedding", shape));
  for (int i = 0; i < 10; ++i) model.layers.push_back(tests::linear("linear" + std::to_string(i), 16, 16));
  model.layers.push_back(tests::head("head", shape));
  for (int prefetch = 0; prefetch <= 12; ++prefetch) {
    EngineOptions options;
    options.prefetch = prefetch;
    const auto use = use_at(model, 2, options);
    EXPECT_EQ((*use)[Category::kGathered], static_cast<std::size_t>(std::min(prefetch + 1, 12)) * 256 * 4);
  }
}

}  // namespace
}  // namespace attnbench::fsdp
