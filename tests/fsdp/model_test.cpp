// Models: sizes, names, memory by formula, ties, frozen parameters, the toy model, refusals.
#include "fsdp/model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "bench/base/rng.hpp"
#include "kernels/device/cpu_device.hpp"
#include "plain_trainer.hpp"

namespace attnbench::fsdp {
namespace {

using ::testing::HasSubstr;

Model model_of(const ModelConfig& config) {
  auto model = make_model(config);
  EXPECT_TRUE(model) << model.error().message;
  return std::move(*model);
}

ModelConfig mini() {
  ModelConfig config;
  config.name = "mini";
  config.vocab = 50;
  config.layers = 2;
  config.block.width = 16;
  config.block.ff = 24;
  config.block.heads = 2;
  return config;
}

std::vector<std::int32_t> words(const TokenShape& shape, std::int64_t vocab, std::uint64_t stream) {
  const base::Rng rng(11, stream);
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < shape.tokens(); ++t) {
    ids.push_back(
        static_cast<std::int32_t>(rng.bits(static_cast<std::uint64_t>(t)) % static_cast<std::uint64_t>(vocab)));
  }
  return ids;
}

void fill(PlainTrainer& trainer, const Model& model) {
  for (const auto& layer : model.layers) {
    for (const ParamSpec& spec : layer->params()) {
      if (spec.tied_to.empty()) init_values(spec, 5, 0, trainer.master(spec.name));
    }
  }
}

TEST(ModelSizes, HaveTheParametersThatTheirDimensionsGive) {
  // 2 vocab d for the two tables, per block 4 d^2 + 3 d ff + 2 d, and d for the last norm.
  const std::pair<const char*, std::int64_t> expected[] = {
      {"tiny", 2 * 1280000 + 4 * (65536 + 196608 + 256) + 128},
      {"small", 2 * 7680000 + 12 * (2359296 + 7077888 + 1536) + 768},
      {"10b", 2 * 46080000LL + 50 * (84934656LL + 169869312LL + 9216) + 4608}};
  for (const auto& [word, count] : expected) {
    EXPECT_EQ(parameter_count(model_of(model_size(word).value())), count) << word;
  }
  const auto unknown = model_size("huge");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("tiny, small, medium, large, xl, 10b"));
}

TEST(ModelLayers, NameEveryParameterOnceAndKeepTheFlatOrder) {
  const Model model = model_of(mini());
  ASSERT_EQ(model.layers.size(), 4u);
  std::set<std::string> names;
  for (const auto& layer : model.layers) {
    for (const ParamSpec& spec : layer->params()) EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
  }
  EXPECT_EQ(names.size(), 3u + 2 * 9);
  EXPECT_EQ(model.layers[1]->params()[1].name, "layers.0.attn.q_proj.weight");
  EXPECT_EQ(model.layers[3]->params()[1].name, "lm_head.weight");
}

TEST(ModelLayers, AskForTheMemoryOfTheirFormulas) {
  kernels::CpuDevice device(1);
  const TokenShape shape{2, 64};  // 128 rows: every part is a multiple of 256 bytes
  const Model model = model_of(model_size("tiny").value());
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
    Numerics numerics{dtype, Dtype::kFp32, false, false};
    const LayerPlan block = model.layers[1]->plan(shape, numerics, device).value();
    // 5 d + 2 ff elements a token, lse and the two row statistics of attention for each of 4 heads; for 16-bit elements
    // attention keeps its unrounded output too
    const std::size_t unrounded = dtype == Dtype::kFp32 ? 0 : 128 * 4;
    EXPECT_EQ(block.saved_bytes, 128 * ((5 * 128 + 2 * 512) * kernels::size_of(dtype) + 3 * 4 * 4 + unrounded));
    numerics.checkpoint = true;
    const LayerPlan checkpointed = model.layers[1]->plan(shape, numerics, device).value();
    EXPECT_EQ(checkpointed.saved_bytes, 0u);
    EXPECT_EQ(checkpointed.workspace_bytes, block.workspace_bytes + block.saved_bytes);
    const LayerPlan head = model.layers.back()->plan(shape, numerics, device).value();
    EXPECT_EQ(head.saved_bytes, 128 * (10000 * kernels::size_of(dtype) + 4));
    EXPECT_TRUE(block.backward_reads_params && head.backward_reads_params);
    EXPECT_FALSE(model.layers[0]->plan(shape, numerics, device)->backward_reads_params);
    // 2 T (4 d^2 + 3 d ff) and, for attention, 4 d a visible pair: 64 * 65 / 2 in each of 2 sequences
    EXPECT_DOUBLE_EQ(block.forward_flop, 2.0 * 128 * (4 * 128 * 128 + 3 * 128 * 512) + 4.0 * 128 * 2 * 2080);
    EXPECT_DOUBLE_EQ(block.backward_flop, 2 * block.forward_flop);
  }
}

TEST(Models, LearnARepeatedBatch) {
  kernels::CpuDevice device(2);
  const TokenShape shape{2, 12};
  const auto tokens = words(shape, 50, 1), targets = words(shape, 50, 2);
  for (const bool toy : {true, false}) {
    Model model = toy ? make_toy_model(50, 16, 24) : model_of(mini());
    const Model specs = toy ? make_toy_model(50, 16, 24) : model_of(mini());
    auto trainer = PlainTrainer::make(std::move(model), shape, {}, device);
    ASSERT_TRUE(trainer) << trainer.error().message;
    fill(**trainer, specs);
    AdamW optimizer;
    optimizer.lr = 1e-2;
    const double first = (*trainer)->loss(tokens.data(), targets.data()).value();
    EXPECT_NEAR(first, std::log(50.0), 0.2);
    for (int step = 0; step < 60; ++step) {
      ASSERT_TRUE((*trainer)->run(tokens.data(), targets.data()));
      (*trainer)->update(optimizer);
    }
    EXPECT_LT((*trainer)->loss(tokens.data(), targets.data()).value(), 0.3 * first) << (toy ? "toy" : "mini");
  }
}

TEST(Models, ScaleAllGradientsByTheLossScale) {
  kernels::CpuDevice device(1);
  const TokenShape shape{1, 9};
  const auto tokens = words(shape, 50, 1), targets = words(shape, 50, 2);
  auto trainer = PlainTrainer::make(model_of(mini()), shape, {}, device);
  ASSERT_TRUE(trainer) << trainer.error().message;
  fill(**trainer, model_of(mini()));
  ASSERT_TRUE((*trainer)->run(tokens.data(), targets.data()));
  const auto plain = (*trainer)->gradients();
  ASSERT_TRUE((*trainer)->run(tokens.data(), targets.data(), 256.0f));  // a power of two: exact
  EXPECT_EQ((*trainer)->gradients(), plain);
}

TEST(Models, ShareOneTableWhenTied) {
  ModelConfig config = mini();
  config.tied = true;
  EXPECT_EQ(parameter_count(model_of(config)), parameter_count(model_of(mini())) - 50 * 16);
  kernels::CpuDevice device(1);
  const TokenShape shape{1, 9};
  const auto tokens = words(shape, 50, 1), targets = words(shape, 50, 2);
  auto tied = PlainTrainer::make(model_of(config), shape, {}, device);
  auto apart = PlainTrainer::make(model_of(mini()), shape, {}, device);
  ASSERT_TRUE(tied && apart);
  fill(**tied, model_of(config));
  fill(**apart, model_of(mini()));
  (*apart)->master("lm_head.weight") = (*apart)->master("token_embeddings.weight");
  const double loss = (*tied)->run(tokens.data(), targets.data()).value();
  EXPECT_EQ(loss, (*apart)->run(tokens.data(), targets.data()).value());
  const auto& both = (*tied)->gradients().at("token_embeddings.weight");
  const auto& table = (*apart)->gradients().at("token_embeddings.weight");
  const auto& head = (*apart)->gradients().at("lm_head.weight");
  for (std::size_t i = 0; i < both.size(); ++i) EXPECT_FLOAT_EQ(both[i], table[i] + head[i]);
}

TEST(Models, LeaveFrozenParametersWithoutGradientsAndTheOthersAsTheyWere) {
  ModelConfig config = mini();
  config.frozen = {"token_embeddings.weight", "layers.0.", "layers.1.attn.k_proj.weight", "ln_final"};
  kernels::CpuDevice device(1);
  const TokenShape shape{1, 9};
  const auto tokens = words(shape, 50, 1), targets = words(shape, 50, 2);
  auto partly = PlainTrainer::make(model_of(config), shape, {}, device);
  auto whole = PlainTrainer::make(model_of(mini()), shape, {}, device);
  ASSERT_TRUE(partly && whole);
  for (auto* const each : {partly->get(), whole->get()}) {
    fill(*each, model_of(mini()));
    ASSERT_TRUE(each->run(tokens.data(), targets.data()));
  }
  EXPECT_EQ((*partly)->gradients().size(), 3u + 2 * 9 - 1 - 9 - 1 - 1);
  for (const auto& [name, grad] : (*partly)->gradients()) {
    const auto& expected = (*whole)->gradients().at(name);
    for (std::size_t i = 0; i < grad.size(); ++i) ASSERT_NEAR(grad[i], expected[i], 1e-7) << name;
  }
  config.frozen = {"layers.7."};
  const auto refused = make_model(config);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("layers.7."));
}

TEST(Models, RefuseWordsOutsideTheVocabulary) {
  kernels::CpuDevice device(1);
  const TokenShape shape{1, 3};
  auto trainer = PlainTrainer::make(model_of(mini()), shape, {}, device);
  ASSERT_TRUE(trainer);
  const std::int32_t good[] = {1, 2, 3}, low[] = {1, -1, 3}, high[] = {1, 2, 50};
  EXPECT_THAT((*trainer)->loss(low, good).error().message, HasSubstr("token -1 at position 1"));
  EXPECT_THAT((*trainer)->loss(good, high).error().message, HasSubstr("target 50 at position 2"));
}

TEST(Models, RefuseDimensionsThatDoNotFit) {
  ModelConfig config = mini();
  config.block.heads = 3;
  EXPECT_THAT(make_model(config).error().message, HasSubstr("3 heads"));
  config = mini();
  config.vocab = 0;
  EXPECT_THAT(make_model(config).error().message, HasSubstr("positive"));
  config = mini();
  config.block.attention = "flash:nothing";
  kernels::CpuDevice device(1);
  EXPECT_FALSE(model_of(config).layers[1]->plan({1, 4}, {}, device));
}

TEST(InitialValues, DependOnNameSeedAndIndexAlone) {
  const ParamSpec spec{"layers.3.ffn.w1.weight", {40, 25}};
  std::vector<float> whole(1000), part(300), other(1000), gain(7);
  init_values(spec, 1, 0, whole);
  init_values(spec, 1, 450, part);
  init_values({"layers.4.ffn.w1.weight", {40, 25}}, 1, 0, other);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 450));
  EXPECT_NE(whole, other);
  double squares = 0;
  for (const float value : whole) squares += double{value} * double{value};
  EXPECT_NEAR(std::sqrt(squares / 1000), 0.02, 0.002);
  init_values({"gain", {7}, false, {}, 1.0f, 0.0f}, 1, 0, gain);
  EXPECT_EQ(gain, std::vector<float>(7, 1.0f));
}

}  // namespace
}  // namespace attnbench::fsdp
