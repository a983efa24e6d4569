#include "fsdp/schedule.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace attnbench::fsdp {
namespace {

std::vector<ScheduleLayer> plain_layers(int count) {
  ScheduleLayer layer;
  layer.gathers = layer.backward_gathers = layer.reduces = true;
  return std::vector<ScheduleLayer>(static_cast<std::size_t>(count), layer);
}

/// Layers of every kind, by the bits of a seed.
std::vector<ScheduleLayer> mixed_layers(int count, unsigned seed) {
  std::vector<ScheduleLayer> layers = plain_layers(count);
  for (int i = 0; i < count; ++i) {
    ScheduleLayer& layer = layers[static_cast<std::size_t>(i)];
    seed = seed * 1664525u + 1013904223u;
    if (seed >> 28 == 0) layer.gathers = layer.reduces = false;               // ReLU: no parameters
    if (seed >> 28 == 1) layer.reduces = false;                               // frozen
    if (seed >> 28 == 2 || i == 0) layer.backward_gathers = false;            // embedding
    if (seed >> 28 == 3) layer.keeps_weights = layer.keeps_gradients = true;  // tied to
  }
  return layers;
}

/// Runs a schedule on paper and checks that it could be performed.
class Paper {
 public:
  Paper(const std::vector<ScheduleLayer>& layers, const EngineOptions& options)
      : layers_(layers), options_(options), schedule_(make_schedule(layers, options)) {}

  void run() {
    for (const Action& action : schedule_.actions) perform(action);
    for (const Action& action : schedule_.drain) perform(action);
    EXPECT_TRUE(held_.empty()) << "weights are left in slots at the end of a step";
    EXPECT_TRUE(reducing_.empty()) << "reductions are left that nobody waits for";
    for (const auto& [layer, count] : reduced_) EXPECT_EQ(count, expected_reductions()) << layer;
    const int count = static_cast<int>(layers_.size());
    EXPECT_EQ(forwards_, count * options_.micro_batches);
    EXPECT_EQ(backwards_, count * options_.micro_batches);
  }

  const Schedule& schedule() const { return schedule_; }
  int gathers() const { return gathers_; }
  int most_held() const { return most_held_; }

 private:
  int expected_reductions() const { return keeps_whole_gradients(options_) ? 1 : options_.micro_batches; }
  const ScheduleLayer& layer(const Action& action) const { return layers_[static_cast<std::size_t>(action.layer)]; }

  void perform(const Action& action) {
    switch (action.kind) {
      case ActionKind::kGather:
        EXPECT_TRUE(layer(action).gathers);
        EXPECT_EQ(held_.count(action.layer), 0u) << "gathered although it is there";
        if (action.slot != kOwnMemory) {
          EXPECT_LT(action.slot, schedule_.gather_slots);
          EXPECT_TRUE(slots_.insert(action.slot).second) << "the slot is in use";
        }
        EXPECT_EQ(action.slot == kOwnMemory, layer(action).keeps_weights);
        held_[action.layer] = {action.slot, false};
        most_held_ = std::max(most_held_, static_cast<int>(slots_.size()));
        ++gathers_;
        break;
      case ActionKind::kAwaitGather:
        ASSERT_EQ(held_.count(action.layer), 1u);
        held_[action.layer].second = true;
        break;
      case ActionKind::kRelease:
        ASSERT_EQ(held_.count(action.layer), 1u);
        slots_.erase(held_[action.layer].first);
        held_.erase(action.layer);
        break;
      case ActionKind::kForward:
        ++forwards_;
        expect_weights(action);
        break;
      case ActionKind::kBackward:
        ++backwards_;
        if (layer(action).backward_gathers) expect_weights(action);
        expect_free_gradients(action);
        break;
      case ActionKind::kReduce:
        EXPECT_TRUE(layer(action).reduces);
        reducing_[action.layer] = action.slot;
        ++reduced_[action.layer];
        break;
      case ActionKind::kAwaitReduce:
        EXPECT_EQ(reducing_.erase(action.layer), 1u) << "waits for what is not on its way";
        break;
    }
  }

  void expect_weights(const Action& action) {
    if (!layer(action).gathers) return;
    ASSERT_EQ(held_.count(action.layer), 1u) << "layer " << action.layer << " computes without its weights";
    EXPECT_TRUE(held_[action.layer].second) << "layer " << action.layer << " computes before its weights are there";
  }

  void expect_free_gradients(const Action& action) {
    if (!layer(action).reduces) return;
    EXPECT_EQ(reducing_.count(action.layer), 0u) << "writes over gradients that are being reduced";
    for (const auto& [other, slot] : reducing_) {
      EXPECT_FALSE(slot != kOwnMemory && slot == action.slot) << "writes into the slot of layer " << other;
    }
    for (const int owner : layer(action).also_writes) EXPECT_EQ(reducing_.count(owner), 0u);
  }

  const std::vector<ScheduleLayer>& layers_;
  const EngineOptions& options_;
  const Schedule schedule_;
  std::map<int, std::pair<int, bool>> held_;  // layer: slot, awaited
  std::set<int> slots_;
  std::map<int, int> reducing_, reduced_;  // layer: gradient slot; count
  int gathers_ = 0, most_held_ = 0, forwards_ = 0, backwards_ = 0;
};

TEST(Schedule, EveryComputationFindsItsWeightsAndAFreeSlotForGradients) {
  for (int count = 1; count <= 9; ++count) {
    for (int prefetch = 0; prefetch <= 10; ++prefetch) {
      for (const int micro_batches : {1, 2, 3}) {
        for (const Accumulation accumulation : {Accumulation::kSharded, Accumulation::kUnsharded}) {
          for (const Dtype reduce : {Dtype::kFp32, Dtype::kBf16}) {
            for (unsigned seed = 0; seed < 6; ++seed) {
              EngineOptions options;
              options.prefetch = prefetch;
              options.micro_batches = micro_batches;
              options.accumulation = accumulation;
              options.reduce_dtype = reduce;
              const auto layers = seed == 0 ? plain_layers(count) : mixed_layers(count, seed);
              Paper paper(layers, options);
              paper.run();
              EXPECT_LE(paper.most_held(), prefetch + 1);
              if (HasFailure()) FAIL() << count << " layers, prefetch " << prefetch << ", seed " << seed;
            }
          }
        }
      }
    }
  }
}

// pytorch#163153, fairscale#623: the next gather must be on its way before the layer computes.
TEST(Schedule, TheGatherOfTheLayerDAheadStartsBeforeTheLayerComputes) {
  for (const int prefetch : {0, 1, 2, 3}) {
    EngineOptions options;
    options.prefetch = prefetch;
    const auto layers = plain_layers(8);
    const Schedule schedule = make_schedule(layers, options);
    std::map<int, int> forward_gather, backward_gather;  // layer: number of computations before its gather
    int computed = 0;
    for (const Action& action : schedule.actions) {
      if (action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward) ++computed;
      if (action.kind != ActionKind::kGather) continue;
      auto& seen = computed < 8 ? forward_gather : backward_gather;
      seen[action.layer] = computed;
    }
    for (int i = 0; i < 8; ++i) EXPECT_EQ(forward_gather.at(i), std::max(0, i - prefetch)) << prefetch;
    // In backward layer i is computation 15 - i; those still held from the forward are not gathered again.
    for (const auto& [layer, when] : backward_gather) EXPECT_EQ(when, 15 - layer - prefetch) << prefetch;
  }
}

TEST(Schedule, TheTurnGathersNothingThatIsStillThere) {
  for (int prefetch = 0; prefetch < 8; ++prefetch) {
    EngineOptions options;
    options.prefetch = prefetch;
    const auto layers = plain_layers(8);
    Paper paper(layers, options);
    paper.run();
    EXPECT_EQ(paper.gathers(), 8 + 8 - (prefetch + 1)) << prefetch;
  }
}

TEST(Schedule, ShardGradOpGathersOnceAndDdpNever) {
  auto layers = plain_layers(6);
  for (ScheduleLayer& layer : layers) layer.keeps_weights = true;
  EngineOptions options;
  options.micro_batches = 2;
  Paper kept(layers, options);
  kept.run();
  EXPECT_EQ(kept.gathers(), 6);
  for (ScheduleLayer& layer : layers) layer.gathers = false;
  options.strategy = Strategy::kDdp;
  options.accumulation = Accumulation::kUnsharded;
  Paper never(layers, options);
  never.run();
  EXPECT_EQ(never.gathers(), 0);
}

TEST(Schedule, TheEndsOfAStepAreNamedApart) {
  EngineOptions options;
  const auto layers = plain_layers(5);
  const Schedule schedule = make_schedule(layers, options);
  int first = 0;
  for (const Action& action : schedule.actions)
    first += action.kind == ActionKind::kAwaitGather && action.cause == Cause::kFirstGather;
  EXPECT_EQ(first, 1);
  ASSERT_FALSE(schedule.drain.empty());
  for (const Action& action : schedule.drain) {
    EXPECT_EQ(action.cause, &action == &schedule.drain.back() ? Cause::kLastReduce : Cause::kReduce);
  }
  EXPECT_EQ(schedule.drain.back().layer, 0);
}

TEST(Schedule, IsTheSameOnEveryRankSinceItIsMadeFromTheSameInputs) {
  const auto layers = mixed_layers(7, 5);
  const Schedule a = make_schedule(layers, {}), b = make_schedule(layers, {});
  EXPECT_EQ(a.actions, b.actions);
  EXPECT_EQ(a.drain, b.drain);
}

}  // namespace
}  // namespace attnbench::fsdp
