// The pre-norm transformer block: attention half, then gated feed-forward half.
#include <algorithm>
#include <array>
#include <utility>

#include "fsdp/layers.hpp"
#include "fsdp/tools.hpp"
#include "kernels/work.hpp"

namespace attnbench::fsdp {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using kernels::AttentionArgs;
using kernels::GradOut;
using kernels::Pass;
using kernels::Problem;

enum Param : std::size_t { kLn1, kQ, kK, kV, kOutput, kLn2, kW1, kW3, kW2, kParams };

/// Everything about a block of one shape that needs no memory.
struct BlockShape {
  BlockConfig config;
  TokenShape tokens;
  Numerics numerics;

  std::int64_t rows() const { return tokens.tokens(); }
  std::int64_t head_dim() const { return config.width / config.heads; }
  Problem problem() const {
    return {.batch = tokens.batch,
            .heads = config.heads,
            .kv_heads = config.heads,
            .seq_q = tokens.seq,
            .seq_k = tokens.seq,
            .head_dim = head_dim(),
            .dtype = numerics.compute,
            .causal = true,
            .window_left = -1,
            .scale = kernels::default_scale(head_dim())};
  }
  LinearShape linear(std::int64_t in, std::int64_t out, std::int64_t parts) const {
    return {rows(), in, out, parts, numerics.compute, numerics.gradient};
  }
  LinearShape qkv() const { return linear(config.width, config.width, 3); }
  LinearShape output() const { return linear(config.width, config.width, 1); }
  LinearShape gate_up() const { return linear(config.width, config.ff, 2); }
  LinearShape down() const { return linear(config.ff, config.width, 1); }
};

/// Bytes that a block's parts ask for beside activations.
struct BlockNeeds {
  const kernels::KernelInfo* attention = nullptr;
  std::size_t attention_saved = 0;
  std::size_t attention_scratch = 0;
  std::size_t products_scratch = 0;
  std::size_t norm_scratch = 0;
};

/// Where everything lies.
///
/// Memory  `wide` is act and its gradient in the feed-forward half, the gradients of q, k, v in the attention half;
///         `scratch` is used by one part at a time
struct BlockBuffers {
  void *qkv, *attended, *middle, *gate_up, *attention_saved;
  float* lse;
  void *wide, *normed, *slope, *scratch, *norm_scratch;
  float* inverse;
};

BlockBuffers place(const BlockShape& s, const BlockNeeds& needs, Layout& saved, Layout& workspace) {
  const std::int64_t rows = s.rows(), width = s.config.width, ff = s.config.ff;
  const Dtype dtype = s.numerics.compute;
  Layout& kept = s.numerics.checkpoint ? workspace : saved;
  BlockBuffers b{};
  b.qkv = kept.take(rows * 3 * width, dtype);
  b.attended = kept.take(rows * width, dtype);
  b.middle = kept.take(rows * width, dtype);
  b.gate_up = kept.take(rows * 2 * ff, dtype);
  b.lse = kept.floats(rows * s.config.heads);
  b.attention_saved = kept.take(needs.attention_saved);
  b.wide = workspace.take(rows * std::max(ff, 3 * width), dtype);
  b.normed = workspace.take(rows * width, dtype);
  b.slope = workspace.take(rows * width, dtype);
  b.inverse = workspace.floats(rows);
  b.norm_scratch = workspace.take(needs.norm_scratch);
  b.scratch = workspace.take(std::max(needs.attention_scratch, needs.products_scratch));
  return b;
}

Result<BlockNeeds> needs_of(const BlockShape& s, Device& device) {
  const auto tools = Tools::of(device);
  if (!tools) return tl::unexpected(tools.error());
  BlockNeeds needs;
  const Problem problem = s.problem();
  const auto attention = find_attention(s.config.attention, problem, device, s.numerics.deterministic);
  if (!attention) return tl::unexpected(attention.error());
  needs.attention = *attention;
  const kernels::Target target{&device.facts(), device.threads(), s.numerics.deterministic};
  const kernels::Footprint footprint = needs.attention->footprint(problem, Pass::kFwdBwd, target);
  needs.attention_saved = footprint.saved_bytes;
  needs.attention_scratch = footprint.workspace_bytes;
  needs.norm_scratch = tools->ops->rms_norm_scratch_bytes(s.rows(), s.config.width);
  for (const LinearShape& shape : {s.qkv(), s.output(), s.gate_up(), s.down()}) {
    const auto bytes = Linear::workspace_bytes(shape, device);
    if (!bytes) return tl::unexpected(bytes.error());
    needs.products_scratch = std::max(needs.products_scratch, *bytes);
  }
  return needs;
}

/// Part `index` of three that lie side by side in rows of 3 width, as [B, H, S, D].
kernels::Tensor third(const BlockShape& s, void* base, std::int64_t index) {
  const std::int64_t width = s.config.width, d = s.head_dim();
  void* const data =
      static_cast<std::byte*>(base) + static_cast<std::size_t>(index * width) * kernels::size_of(s.numerics.compute);
  return {data,
          s.numerics.compute,
          {s.tokens.batch, s.config.heads, s.tokens.seq, d},
          {s.tokens.seq * 3 * width, d, 3 * width, 1}};
}

kernels::Tensor heads_of(const BlockShape& s, void* base) {
  const std::int64_t width = s.config.width, d = s.head_dim();
  return {
      base, s.numerics.compute, {s.tokens.batch, s.config.heads, s.tokens.seq, d}, {s.tokens.seq * width, d, width, 1}};
}

class BoundBlock : public BoundLayer {
 public:
  BoundBlock(const BlockShape& shape, Tools tools, const BlockBuffers& buffers)
      : s_(shape), tools_(std::move(tools)), b_(buffers) {}

  Result<void> prepare(const BlockNeeds& needs, Device& device) {
    AttentionArgs args;
    args.problem = s_.problem();
    args.q = third(s_, b_.qkv, 0);
    args.k = third(s_, b_.qkv, 1);
    args.v = third(s_, b_.qkv, 2);
    args.o = heads_of(s_, b_.attended);
    args.lse = b_.lse;
    args.dout = heads_of(s_, b_.slope);
    args.dq = third(s_, b_.wide, 0);
    args.dk = third(s_, b_.wide, 1);
    args.dv = third(s_, b_.wide, 2);
    args.saved = needs.attention_saved > 0 ? b_.attention_saved : nullptr;
    args.workspace = needs.attention_scratch > 0 ? b_.scratch : nullptr;
    args.deterministic = s_.numerics.deterministic;
    auto attention = kernels::prepare(*needs.attention, args, Pass::kFwdBwd, device);
    if (!attention) return tl::unexpected(attention.error());
    attention_ = std::move(*attention);
    const std::pair<Linear*, LinearShape> products[] = {
        {&qkv_, s_.qkv()}, {&output_, s_.output()}, {&gate_up_, s_.gate_up()}, {&down_, s_.down()}};
    for (const auto& [product, shape] : products) {
      auto made = Linear::make(shape, b_.scratch, device);
      if (!made) return tl::unexpected(made.error());
      *product = std::move(*made);
    }
    return {};
  }

  Result<void> forward(const LayerForward& call) override {
    Result<void> ok = keep(call.params, call.in);
    if (ok) ok = tools_.ops->run(kernels::SwiGlu{s_.numerics.compute, s_.rows(), s_.config.ff, b_.gate_up, b_.wide});
    if (ok) ok = down_.forward(call.params.subspan(kW2, 1), b_.wide, b_.middle, call.out);
    return ok;
  }

  Result<void> backward(const LayerBackward& call) override {
    Result<void> ok = s_.numerics.checkpoint ? keep(call.params, call.in) : Result<void>{};
    if (ok) ok = feed_forward_backward(call);
    if (ok) ok = attention_backward(call);
    return ok;
  }

 private:
  /// The forward up to gate and up: what the backward reads.
  Result<void> keep(std::span<const void* const> params, const void* in) {
    Result<void> ok = norm(in, params[kLn1]);
    if (ok) ok = qkv_.forward(params.subspan(kQ, 3), b_.normed, nullptr, b_.qkv);
    if (ok) ok = rotate(b_.qkv, false);
    if (ok) ok = attention_->launch(Pass::kFwd);
    if (ok) ok = output_.forward(params.subspan(kOutput, 1), b_.attended, in, b_.middle);
    if (ok) ok = norm(b_.middle, params[kLn2]);
    if (ok) ok = gate_up_.forward(params.subspan(kW1, 2), b_.normed, nullptr, b_.gate_up);
    return ok;
  }

  /// From dout to the gradient at the residual between the halves, in din.
  Result<void> feed_forward_backward(const LayerBackward& call) {
    const Dtype dtype = s_.numerics.compute;
    Result<void> ok = down_.input_gradient(call.params.subspan(kW2, 1), call.dout, b_.wide);
    if (ok) ok = tools_.ops->run(kernels::SwiGluBackward{dtype, s_.rows(), s_.config.ff, b_.gate_up, b_.wide});
    if (ok) ok = down_.weight_gradient(call.grads.subspan(kW2, 1), call.dout, b_.wide);
    if (ok) ok = norm(b_.middle, call.params[kLn2]);
    if (ok) ok = gate_up_.weight_gradient(call.grads.subspan(kW1, 2), b_.gate_up, b_.normed);
    if (ok) ok = gate_up_.input_gradient(call.params.subspan(kW1, 2), b_.gate_up, b_.slope);
    if (ok) ok = norm_backward(b_.middle, call.params[kLn2], call.grads[kLn2], call.dout, call.din);
    return ok;
  }

  /// From the gradient in din to the gradient of the input, in din.
  Result<void> attention_backward(const LayerBackward& call) {
    Result<void> ok = output_.weight_gradient(call.grads.subspan(kOutput, 1), call.din, b_.attended);
    if (ok) ok = output_.input_gradient(call.params.subspan(kOutput, 1), call.din, b_.slope);
    if (ok) ok = attention_->launch(Pass::kBwd);
    if (ok) ok = rotate(b_.wide, true);
    if (ok) ok = norm(call.in, call.params[kLn1]);
    if (ok) ok = qkv_.weight_gradient(call.grads.subspan(kQ, 3), b_.wide, b_.normed);
    if (ok) ok = qkv_.input_gradient(call.params.subspan(kQ, 3), b_.wide, b_.slope);
    if (ok) ok = norm_backward(call.in, call.params[kLn1], call.grads[kLn1], call.din, call.din);
    return ok;
  }

  Result<void> norm(const void* x, const void* gain) {
    return tools_.ops->run(kernels::RmsNorm{s_.numerics.compute, s_.rows(), s_.config.width, s_.config.eps, x, gain,
                                            b_.normed, b_.inverse});
  }

  /// dx = addend + the gradient of the norm whose result has the gradient in `slope`.
  Result<void> norm_backward(const void* x, const void* gain, const GradTarget& dgain, const void* addend, void* dx) {
    return tools_.ops->run(
        kernels::RmsNormBackward{s_.numerics.compute, s_.rows(), s_.config.width, x, gain, b_.inverse, b_.slope, addend,
                                 dx, GradOut{dgain.data, s_.numerics.gradient, dgain.accumulate}, b_.norm_scratch});
  }

  /// q and k are neighbours: 2 heads of them, heads' worth each.
  Result<void> rotate(void* qkv, bool inverse) {
    return tools_.ops->run(kernels::Rotary{s_.numerics.compute, s_.tokens.batch, s_.tokens.seq, 2 * s_.config.heads,
                                           s_.head_dim(), 3 * s_.config.width, s_.config.theta, inverse, qkv});
  }

  BlockShape s_;
  Tools tools_;
  BlockBuffers b_;
  std::unique_ptr<kernels::PreparedKernel> attention_;
  Linear qkv_, output_, gate_up_, down_;
};

class Block : public Layer {
 public:
  Block(std::string name, const BlockConfig& config, std::vector<ParamSpec> params)
      : name_(std::move(name)), config_(config), params_(std::move(params)) {
    ATTNBENCH_ENSURE(params_.size() == kParams, "a block has nine parameters");
  }

  std::string_view name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }

  Result<LayerPlan> plan(const TokenShape& shape, const Numerics& numerics, Device& device) const override {
    if (config_.heads <= 0 || config_.width % config_.heads != 0 || config_.width / config_.heads % 2 != 0) {
      return fail(ErrorKind::kUsage, "width " + std::to_string(config_.width) + " does not make " +
                                         std::to_string(config_.heads) + " heads of an even dimension");
    }
    const BlockShape s{config_, shape, numerics};
    const auto needs = needs_of(s, device);
    if (!needs) return tl::unexpected(needs.error());
    Layout saved(nullptr), workspace(nullptr);
    place(s, *needs, saved, workspace);
    LayerPlan plan;
    plan.in_elements = plan.out_elements = s.rows() * config_.width;
    plan.saved_bytes = saved.bytes();
    plan.workspace_bytes = workspace.bytes();
    plan.forward_flop = kernels::model_flops(s.problem(), Pass::kFwd);
    for (const LinearShape& each : {s.qkv(), s.output(), s.gate_up(), s.down()}) plan.forward_flop += each.flop();
    plan.backward_flop = 2 * plan.forward_flop;
    return plan;
  }

  Result<std::unique_ptr<BoundLayer>> bind(const TokenShape& shape, const Numerics& numerics, const LayerMemory& memory,
                                           Device& device) const override {
    const BlockShape s{config_, shape, numerics};
    const auto needs = needs_of(s, device);
    if (!needs) return tl::unexpected(needs.error());
    auto tools = Tools::of(device);
    if (!tools) return tl::unexpected(tools.error());
    Layout saved(memory.saved), workspace(memory.workspace);
    auto bound = std::make_unique<BoundBlock>(s, std::move(*tools), place(s, *needs, saved, workspace));
    if (auto ok = bound->prepare(*needs, device); !ok) return tl::unexpected(ok.error());
    return bound;
  }

 private:
  std::string name_;
  BlockConfig config_;
  std::vector<ParamSpec> params_;
};

}  // namespace

std::vector<ParamSpec> block_params(const std::string& prefix, const BlockConfig& config) {
  const std::int64_t width = config.width, ff = config.ff;
  const auto gain = [&](const char* name) { return ParamSpec{prefix + name, {width}, false, {}, 1.0f, 0.0f}; };
  const auto weight = [&](const char* name, std::int64_t out, std::int64_t in) {
    return ParamSpec{prefix + name, {out, in}};
  };
  return {gain("ln1.weight"),
          weight("attn.q_proj.weight", width, width),
          weight("attn.k_proj.weight", width, width),
          weight("attn.v_proj.weight", width, width),
          weight("attn.output_proj.weight", width, width),
          gain("ln2.weight"),
          weight("ffn.w1.weight", ff, width),
          weight("ffn.w3.weight", ff, width),
          weight("ffn.w2.weight", width, ff)};
}

std::unique_ptr<Layer> make_block(std::string name, const BlockConfig& config, std::vector<ParamSpec> params) {
  return std::make_unique<Block>(std::move(name), config, std::move(params));
}

}  // namespace attnbench::fsdp
