// Builds models from their dimensions.
#include "fsdp/model.hpp"

#include <algorithm>

#include "bench/base/rng.hpp"

namespace attnbench::fsdp {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

ParamSpec gain_of(std::string name, std::int64_t width) { return {std::move(name), {width}, false, {}, 1.0f, 0.0f}; }

/// Marks what the configuration freezes; counts for each of its names how many parameters it met.
void freeze(std::vector<ParamSpec>& params, const std::vector<std::string>& names, std::vector<int>& met) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (ParamSpec& param : params) {
      if (!param.name.starts_with(names[i])) continue;
      param.frozen = true;
      ++met[i];
    }
  }
}

Result<void> check(const ModelConfig& config) {
  const BlockConfig& b = config.block;
  if (config.vocab <= 0 || config.layers < 0 || b.width <= 0 || b.ff <= 0 || b.heads <= 0) {
    return fail(ErrorKind::kUsage, "every dimension of a model is positive; vocab, width, ff, layers and heads are " +
                                       std::to_string(config.vocab) + ", " + std::to_string(b.width) + ", " +
                                       std::to_string(b.ff) + ", " + std::to_string(config.layers) + " and " +
                                       std::to_string(b.heads));
  }
  if (b.width % b.heads != 0 || b.width / b.heads % 2 != 0) {
    return fail(ErrorKind::kUsage, "a width of " + std::to_string(b.width) + " does not make " +
                                       std::to_string(b.heads) + " heads of an even dimension");
  }
  // Counts of bytes stay far below what 64 bits hold; so do the vectors that list the layers.
  const double parameters = 2.0 * static_cast<double>(config.vocab) * static_cast<double>(b.width) +
                            static_cast<double>(config.layers) * static_cast<double>(b.width) *
                                (4.0 * static_cast<double>(b.width) + 3.0 * static_cast<double>(b.ff));
  if (parameters > 1e15 || config.layers > 10'000) {
    return fail(ErrorKind::kUsage,
                "a model of more than 1e15 parameters or 10000 blocks is not tried; take fewer blocks, "
                "a smaller width, feed-forward part or vocabulary");
  }
  return {};
}

/// FNV-1a: which stream of random numbers a parameter draws from.
std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

Result<ModelConfig> model_size(std::string_view word) {
  struct Size {
    std::int64_t width, ff, layers, heads;
  };
  constexpr std::array<Size, kModelSizes.size()> kSizes = {{{128, 512, 4, 4},
                                                            {768, 3072, 12, 12},
                                                            {1024, 4096, 24, 16},
                                                            {1280, 5120, 36, 20},
                                                            {2560, 10240, 32, 32},
                                                            {4608, 12288, 50, 36}}};
  std::string known;
  for (std::size_t i = 0; i < kModelSizes.size(); ++i) {
    known += (i == 0 ? "" : ", ") + std::string(kModelSizes[i]);
    if (kModelSizes[i] != word) continue;
    ModelConfig config;
    config.name = word;
    config.layers = kSizes[i].layers;
    config.block.width = kSizes[i].width;
    config.block.ff = kSizes[i].ff;
    config.block.heads = kSizes[i].heads;
    return config;
  }
  return fail(ErrorKind::kUsage, "there is no model '" + std::string(word) + "'; use one of " + known);
}

Result<Model> make_model(const ModelConfig& config) {
  if (auto ok = check(config); !ok) return tl::unexpected(ok.error());
  const std::int64_t width = config.block.width;
  std::vector<int> met(config.frozen.size(), 0);
  std::vector<ParamSpec> table{{"token_embeddings.weight", {config.vocab, width}}};
  std::vector<ParamSpec> head{gain_of("ln_final.weight", width), {"lm_head.weight", {config.vocab, width}}};
  if (config.tied) head[1].tied_to = table[0].name;
  freeze(table, config.frozen, met);
  freeze(head, config.frozen, met);
  if (config.tied) head[1].frozen = table[0].frozen;

  Model model{config.name, {}};
  model.layers.push_back(make_embedding("embedding", table[0]));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    std::vector<ParamSpec> params = block_params(name + ".", config.block);
    freeze(params, config.frozen, met);
    model.layers.push_back(make_block(name, config.block, std::move(params)));
  }
  model.layers.push_back(make_head("head", head[0], head[1], config.block.eps));
  const auto unmet = std::find(met.begin(), met.end(), 0);
  if (unmet != met.end()) {
    return fail(ErrorKind::kUsage, "no parameter's name begins with '" +
                                       config.frozen[static_cast<std::size_t>(unmet - met.begin())] +
                                       "', which was to be frozen; names look like layers.0.attn.q_proj.weight");
  }
  return model;
}

Model make_toy_model(std::int64_t vocab, std::int64_t width, std::int64_t ff) {
  Model model{"toy", {}};
  model.layers.push_back(make_embedding("embedding", {"embedding.weight", {vocab, width}}));
  model.layers.push_back(make_norm("norm1", gain_of("norm1.weight", width)));
  model.layers.push_back(make_linear("linear1", {"linear1.weight", {ff, width}}));
  model.layers.push_back(make_relu("relu", ff));
  model.layers.push_back(make_norm("norm2", gain_of("norm2.weight", ff)));
  model.layers.push_back(make_linear("linear2", {"linear2.weight", {width, ff}}));
  model.layers.push_back(make_head("head", std::nullopt, {"head.weight", {vocab, width}}));
  return model;
}

std::int64_t parameter_count(const Model& model) {
  std::int64_t count = 0;
  for (const auto& layer : model.layers) {
    for (const ParamSpec& param : layer->params()) count += param.tied_to.empty() ? param.elements() : 0;
  }
  return count;
}

void init_values(const ParamSpec& spec, std::uint64_t seed, std::int64_t begin, std::span<float> out) {
  const base::Rng rng(seed, stream_of(spec.name));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float drawn = spec.init_std == 0.0f ? 0.0f : rng.normal(static_cast<std::uint64_t>(begin) + i);
    out[i] = spec.init_mean + spec.init_std * drawn;
  }
}

}  // namespace attnbench::fsdp
