// The layers that models are made of. Parameters come in as specs, so that a model may name, freeze and tie them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/layer.hpp"

namespace attnbench::fsdp {

/// Rows of a table by token: the first layer of a model. Its backward reads neither weights nor input.
///
/// Shapes  table [vocab, width]   out [batch, seq, width]
/// Memory  nothing saved; workspace for the tokens sorted by word
std::unique_ptr<Layer> make_embedding(std::string name, ParamSpec table);

struct BlockConfig {
  std::int64_t width = 128;
  std::int64_t ff = 512;
  std::int64_t heads = 4;
  float eps = 1e-5f;
  double theta = 10000.0;
  std::string attention = "auto";  // a word of --kernels; auto: flash, or naive where flash is coarser than the dtype
};

/// Specs of a block's parameters in flat order: ln1, q, k, v, output, ln2, w1, w3, w2 under `prefix` ("layers.0.").
std::vector<ParamSpec> block_params(const std::string& prefix, const BlockConfig& config);

/// x += output(attention(norm1 x)); x += w2(silu(w1 y) * w3 y), y = norm2 x. Causal attention with rotary embedding.
///
/// Shapes  in, out [batch, seq, width]
/// Needs   heads divides width, head dimension even
/// Memory  saved, in elements a token: 5 width + 2 ff (q, k, v; attention's output; the residual between the halves;
///         gate and up), and fp32 row statistics of attention. Checkpointed: nothing saved, all of it in the workspace.
///         Workspace: 2 width + max(ff, 3 width), and what attention or a product asks for
std::unique_ptr<Layer> make_block(std::string name, const BlockConfig& config, std::vector<ParamSpec> params);

/// logits = (norm x) W^T and their mean cross-entropy with the targets: the last layer of a model. No norm when
/// `gain` is absent.
///
/// Shapes  gain [width]   weight [vocab, width]   in [batch, seq, width]
/// Memory  saved: logits [tokens, vocab] in the compute dtype, which become their own gradient, and lse
std::unique_ptr<Layer> make_head(std::string name, std::optional<ParamSpec> gain, ParamSpec weight, float eps = 1e-5f);

/// RMS norm alone. Shapes  gain [width]
std::unique_ptr<Layer> make_norm(std::string name, ParamSpec gain, float eps = 1e-5f);
/// y = x W^T. Shapes  weight [out, in]
std::unique_ptr<Layer> make_linear(std::string name, ParamSpec weight);
/// y = max(x, 0): a layer without parameters.
std::unique_ptr<Layer> make_relu(std::string name, std::int64_t width);

}  // namespace attnbench::fsdp
