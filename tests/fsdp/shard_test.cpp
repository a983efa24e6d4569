#include "fsdp/shard.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "bench/base/rng.hpp"

namespace attnbench::fsdp {
namespace {

/// A layer that is its parameters and nothing else.
class Params : public Layer {
 public:
  Params(std::string name, std::vector<ParamSpec> params) : name_(std::move(name)), params_(std::move(params)) {}
  std::string_view name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }
  base::Result<LayerPlan> plan(const TokenShape&, const Numerics&, Device&) const override { return LayerPlan{}; }
  base::Result<std::unique_ptr<BoundLayer>> bind(const TokenShape&, const Numerics&, const LayerMemory&,
                                                 Device&) const override {
    return base::fail(base::ErrorKind::kUnsupported, "not to be run");
  }

 private:
  std::string name_;
  std::vector<ParamSpec> params_;
};

Model model_of(std::vector<std::vector<ParamSpec>> layers) {
  Model model;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    model.layers.push_back(std::make_unique<Params>("layer" + std::to_string(i), std::move(layers[i])));
  }
  return model;
}

ParamSpec param(std::string name, std::vector<std::int64_t> shape, bool frozen = false, std::string tied = {}) {
  return {.name = std::move(name), .shape = std::move(shape), .frozen = frozen, .tied_to = std::move(tied)};
}

/// Sizes that hurt: empty, one element, primes, just under and over multiples of the alignment and the world size.
Model random_model(std::uint64_t seed) {
  static constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 5, 127, 128, 129, 257, 383, 1000, 1021, 4096};
  const base::Rng rng(seed, 11);
  std::uint64_t next = 0;
  std::vector<std::vector<ParamSpec>> layers;
  for (std::uint64_t layer = 0; layer < 1 + rng.bits(next++) % 5; ++layer) {
    std::vector<ParamSpec> params;
    for (std::uint64_t i = 0, n = rng.bits(next++) % 6; i < n; ++i) {
      const std::int64_t size = kSizes[rng.bits(next++) % std::size(kSizes)];
      params.push_back(param("l" + std::to_string(layer) + "p" + std::to_string(i), {size}, rng.bits(next++) % 3 == 0));
    }
    layers.push_back(std::move(params));
  }
  return model_of(std::move(layers));
}

TEST(Shard, TwoParametersOverThreeRanksByHand) {
  // 5 elements end at 5, the next starts at 128 and ends at 131; 3 ranks of 128 hold 384.
  const auto layout = make_layout(model_of({{param("a", {5}), param("b", {3})}}), 3, false);
  ASSERT_TRUE(layout) << layout.error().message;
  const Unit& unit = layout->units[0];
  EXPECT_EQ(unit.params[0].offset, 0);
  EXPECT_EQ(unit.params[1].offset, 128);
  EXPECT_EQ(unit.trainable.used, 131);
  EXPECT_EQ(unit.trainable.padded, 384);
  EXPECT_EQ(unit.trainable.part, 128);
  EXPECT_EQ(layout->trainable_kept, 128);
  EXPECT_EQ(layout->parameters, 8);
  // Rank 0 has all of a, rank 1 all of b, rank 2 nothing.
  EXPECT_EQ(kept_range(*layout, unit.params[0], 0).end, 5);
  EXPECT_EQ(kept_range(*layout, unit.params[1], 0).end, 0);
  EXPECT_EQ(kept_range(*layout, unit.params[1], 1).end, 3);
  const KeptRange empty = kept_range(*layout, unit.params[1], 2);
  EXPECT_EQ(empty.begin, empty.end);
}

// torchtitan PR#4593: 5 rows over 2 ranks were taken for 6 or 4. The logical size is stored, never inferred.
TEST(Shard, LogicalSizesAreKeptWhateverThePadding) {
  for (int world = 1; world <= 9; ++world) {
    const auto layout = make_layout(model_of({{param("a", {5, 7}), param("b", {})}}), world, false);
    ASSERT_TRUE(layout);
    EXPECT_EQ(layout->units[0].params[0].elements, 35);
    EXPECT_EQ(layout->units[0].params[0].spec.shape, (std::vector<std::int64_t>{5, 7}));
    EXPECT_EQ(layout->units[0].params[1].elements, 1);
  }
}

TEST(Shard, EveryElementIsKeptOnceAndEverythingIsAligned) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Model model = random_model(seed);
    for (int world = 1; world <= 9; ++world) {
      const auto layout = make_layout(model, world, false);
      ASSERT_TRUE(layout) << layout.error().message;
      std::int64_t total = 0;
      for (const Unit& unit : layout->units) {
        for (const Segment* segment : {&unit.trainable, &unit.frozen}) {
          EXPECT_EQ(segment->part * world, segment->padded);
          EXPECT_EQ(segment->part % kAlignElements, 0);
          EXPECT_EQ(segment->offset % kAlignElements, 0);
          EXPECT_LT(segment->padded - segment->used, world * kAlignElements);
        }
        for (const Placement& p : unit.params) {
          EXPECT_EQ(p.offset % kAlignElements, 0);
          std::int64_t next = 0;
          for (int rank = 0; rank < world; ++rank) {
            const KeptRange range = kept_range(*layout, p, rank);
            EXPECT_EQ(range.begin, next) << "ranges follow each other";
            next = range.end;
          }
          EXPECT_EQ(next, p.elements);
          total += p.elements;
        }
      }
      EXPECT_EQ(total, layout->parameters);
    }
  }
}

TEST(Shard, NoTwoParametersOfARankOverlap) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Model model = random_model(seed);
    for (const bool replicated : {false, true}) {
      for (const int world : {1, 2, 3, 8}) {
        const auto layout = make_layout(model, world, replicated);
        ASSERT_TRUE(layout);
        for (int rank = 0; rank < world; ++rank) {
          std::vector<int> users(static_cast<std::size_t>(layout->trainable_kept + layout->frozen_kept));
          for (const Unit& unit : layout->units) {
            for (const Placement& p : unit.params) {
              const KeptRange range = kept_range(*layout, p, rank);
              const std::int64_t base = in_trainable(*layout, p) ? 0 : layout->trainable_kept;
              EXPECT_EQ(in_trainable(*layout, p), !p.spec.frozen);
              for (std::int64_t i = 0; i < range.end - range.begin; ++i) {
                ++users.at(static_cast<std::size_t>(base + range.store + i));
              }
            }
          }
          EXPECT_TRUE(std::all_of(users.begin(), users.end(), [](int count) { return count <= 1; }));
          const int kept = std::accumulate(users.begin(), users.end(), 0);
          EXPECT_TRUE(!replicated || kept == layout->parameters) << kept;
        }
      }
    }
  }
}

TEST(Shard, TiedParametersHaveNoStorage) {
  const auto layout = make_layout(
      model_of({{param("embed", {10, 4})}, {param("a", {4})}, {param("head", {10, 4}, false, "embed")}}), 2, false);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->parameters, 44);
  EXPECT_TRUE(layout->units[0].tied_to);
  EXPECT_FALSE(layout->units[1].tied_to);
  EXPECT_EQ(layout->units[2].padded(), 0);
  EXPECT_EQ(layout->units[2].params[0].owner, 0);
}

TEST(Shard, FrozenParametersAreApartAndHaveNoGradientStore) {
  const auto layout = make_layout(model_of({{param("a", {100}), param("b", {300}, true), param("c", {30})}}), 2, false);
  ASSERT_TRUE(layout);
  const Unit& unit = layout->units[0];
  EXPECT_EQ(unit.trainable.padded, 256);  // 100, then 30 at 128
  EXPECT_EQ(unit.frozen.offset, 256);
  EXPECT_EQ(unit.frozen.padded, 512);  // 300 up to a multiple of 2 * 128
  EXPECT_EQ(layout->trainable_kept, 128);
  EXPECT_EQ(layout->frozen_kept, 256);
}

TEST(Shard, MistakesAreNamed) {
  const auto message = [](std::vector<std::vector<ParamSpec>> layers, int world = 2) {
    const auto layout = make_layout(model_of(std::move(layers)), world, false);
    return layout ? std::string("accepted") : layout.error().message;
  };
  EXPECT_NE(message({{param("a", {1})}, {param("a", {1})}}).find("two parameters are named a"), std::string::npos);
  EXPECT_NE(message({{param("a", {1}, false, "b")}}).find("tied to b, which is no parameter"), std::string::npos);
  EXPECT_NE(message({{param("a", {1})}, {param("b", {2}, false, "a")}}).find("shapes differ"), std::string::npos);
  EXPECT_NE(message({{param("a", {1}, true)}, {param("b", {1}, false, "a")}}).find("frozen"), std::string::npos);
  EXPECT_NE(message({{param("a", {-1})}}).find("negative"), std::string::npos);
  EXPECT_NE(message({{param("a", {1})}}, 0).find("world of 0"), std::string::npos);
}

}  // namespace
}  // namespace attnbench::fsdp
