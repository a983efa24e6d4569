// Models as lists of layers: the transformer language model in its sizes, and a toy that has nothing of one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/layers.hpp"

namespace attnbench::fsdp {

/// Dimensions of a decoder-only transformer.
struct ModelConfig {
  std::string name = "tiny";
  std::int64_t vocab = 10000;
  std::int64_t layers = 4;
  BlockConfig block;
  bool tied = false;                // the head's weight is the embedding's table
  std::vector<std::string> frozen;  // names of parameters, or of what they begin with ("layers.0.")
};

/// The words of --model, smallest first.
inline constexpr std::array<std::string_view, 6> kModelSizes = {"tiny", "small", "medium", "large", "xl", "10b"};

/// The dimensions of a size. Errors  kUsage: no such size, with the ones that there are
base::Result<ModelConfig> model_size(std::string_view word);

/// Embedding, blocks, head with the final norm. Layers are named embedding, layers.0 …, head; parameters as in the
/// golden training files (token_embeddings.weight, layers.0.ln1.weight …, ln_final.weight, lm_head.weight).
///
/// Errors  kUsage: dimensions that do not fit together, or a frozen name that no parameter begins with
base::Result<Model> make_model(const ModelConfig& config);

/// Embedding, norm, linear, ReLU, norm, linear, head: every kind of layer but the block.
Model make_toy_model(std::int64_t vocab, std::int64_t width, std::int64_t ff);

/// Elements of a model's own parameters; a tied one counts once.
std::int64_t parameter_count(const Model& model);

/// Values [begin, begin + out.size()) of a fresh parameter: a function of its name, the seed and the index alone, so
/// that any rank makes its shard at any world size.
void init_values(const ParamSpec& spec, std::uint64_t seed, std::int64_t begin, std::span<float> out);

}  // namespace attnbench::fsdp
