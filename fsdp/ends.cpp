// The first and the last layer of a language model: the table of tokens, and the head with the loss.
#include <algorithm>
#include <utility>

#include "fsdp/layers.hpp"
#include "fsdp/tools.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;
using kernels::GradOut;

class BoundEmbedding : public BoundLayer {
 public:
  BoundEmbedding(const ParamSpec& table, std::int64_t rows, const Numerics& numerics, void* scratch, Tools tools)
      : vocab_(table.shape[0]),
        width_(table.shape[1]),
        rows_(rows),
        numerics_(numerics),
        scratch_(scratch),
        tools_(std::move(tools)) {}

  Result<void> forward(const LayerForward& call) override {
    return tools_.ops->run(
        kernels::Embedding{numerics_.compute, rows_, vocab_, width_, call.tokens, call.params[0], call.out});
  }

  Result<void> backward(const LayerBackward& call) override {
    const GradTarget& grad = call.grads[0];
    if (grad.data == nullptr) return {};
    return tools_.ops->run(kernels::EmbeddingBackward{numerics_.compute, rows_, vocab_, width_, call.tokens, call.dout,
                                                      GradOut{grad.data, numerics_.gradient, grad.accumulate},
                                                      scratch_});
  }

 private:
  std::int64_t vocab_, width_, rows_;
  Numerics numerics_;
  void* scratch_;
  Tools tools_;
};

class EmbeddingLayer : public Layer {
 public:
  EmbeddingLayer(std::string name, ParamSpec table) : name_(std::move(name)), params_{std::move(table)} {}

  std::string_view name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }

  Result<LayerPlan> plan(const TokenShape& shape, const Numerics&, Device& device) const override {
    const auto tools = Tools::of(device);
    if (!tools) return tl::unexpected(tools.error());
    LayerPlan plan;
    plan.out_elements = shape.tokens() * params_[0].shape[1];
    plan.workspace_bytes = tools->ops->embedding_scratch_bytes(shape.tokens(), params_[0].shape[0]);
    plan.backward_reads_params = false;
    plan.backward_reads_input = false;
    return plan;
  }

  Result<std::unique_ptr<BoundLayer>> bind(const TokenShape& shape, const Numerics& numerics, const LayerMemory& memory,
                                           Device& device) const override {
    auto tools = Tools::of(device);
    if (!tools) return tl::unexpected(tools.error());
    return std::make_unique<BoundEmbedding>(params_[0], shape.tokens(), numerics, memory.workspace, std::move(*tools));
  }

 private:
  std::string name_;
  std::vector<ParamSpec> params_;
};

struct HeadBuffers {
  void* logits;
  float* lse;
  void *normed, *slope, *norm_scratch, *scratch;
  float* inverse;
};

struct HeadShape {
  LinearShape product;
  bool normed = false;
  float eps = 1e-5f;
  std::size_t norm_scratch = 0;
  std::size_t product_scratch = 0;

  HeadBuffers place(Layout& saved, Layout& workspace) const {
    HeadBuffers b{};
    b.logits = saved.take(product.rows * product.out, product.compute);
    b.lse = saved.floats(product.rows);
    if (normed) {
      b.normed = workspace.take(product.rows * product.in, product.compute);
      b.slope = workspace.take(product.rows * product.in, product.compute);
      b.inverse = workspace.floats(product.rows);
      b.norm_scratch = workspace.take(norm_scratch);
    }
    b.scratch = workspace.take(product_scratch);
    return b;
  }
};

class BoundHead : public BoundLayer {
 public:
  BoundHead(const HeadShape& shape, const HeadBuffers& buffers, Tools tools, Linear product)
      : s_(shape), b_(buffers), tools_(std::move(tools)), product_(std::move(product)) {}

  Result<void> forward(const LayerForward& call) override {
    const LinearShape& p = s_.product;
    Result<void> ok = norm(call.in, call.params);
    if (ok) ok = product_.forward(call.params.last(1), rows_of(call.in), nullptr, b_.logits);
    if (ok) {
      ok = tools_.ops->run(kernels::CrossEntropy{p.compute, p.rows, p.out, b_.logits, call.targets, b_.lse, call.loss});
    }
    return ok;
  }

  Result<void> backward(const LayerBackward& call) override {
    const LinearShape& p = s_.product;
    Result<void> ok = tools_.ops->run(
        kernels::CrossEntropyBackward{p.compute, p.rows, p.out, b_.logits, call.targets, b_.lse, call.loss_scale});
    if (ok) ok = norm(call.in, call.params);
    if (ok) ok = product_.weight_gradient(call.grads.last(1), b_.logits, rows_of(call.in));
    if (ok) ok = product_.input_gradient(call.params.last(1), b_.logits, s_.normed ? b_.slope : call.din);
    if (!ok || !s_.normed) return ok;
    const GradTarget& grad = call.grads[0];
    return tools_.ops->run(kernels::RmsNormBackward{p.compute, p.rows, p.in, call.in, call.params[0], b_.inverse,
                                                    b_.slope, nullptr, call.din,
                                                    GradOut{grad.data, p.gradient, grad.accumulate}, b_.norm_scratch});
  }

 private:
  const void* rows_of(const void* in) const { return s_.normed ? b_.normed : in; }

  Result<void> norm(const void* in, std::span<const void* const> params) {
    if (!s_.normed) return {};
    return tools_.ops->run(kernels::RmsNorm{s_.product.compute, s_.product.rows, s_.product.in, s_.eps, in, params[0],
                                            b_.normed, b_.inverse});
  }

  HeadShape s_;
  HeadBuffers b_;
  Tools tools_;
  Linear product_;
};

class HeadLayer : public Layer {
 public:
  HeadLayer(std::string name, std::optional<ParamSpec> gain, ParamSpec weight, float eps)
      : name_(std::move(name)), normed_(gain.has_value()), eps_(eps) {
    if (gain) params_.push_back(std::move(*gain));
    params_.push_back(std::move(weight));
  }

  std::string_view name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }

  Result<LayerPlan> plan(const TokenShape& shape, const Numerics& numerics, Device& device) const override {
    const auto head = shape_of(shape, numerics, device);
    if (!head) return tl::unexpected(head.error());
    Layout saved(nullptr), workspace(nullptr);
    head->place(saved, workspace);
    LayerPlan plan;
    plan.in_elements = head->product.rows * head->product.in;
    plan.saved_bytes = saved.bytes();
    plan.workspace_bytes = workspace.bytes();
    plan.forward_flop = head->product.flop();
    plan.backward_flop = 2 * plan.forward_flop;
    return plan;
  }

  Result<std::unique_ptr<BoundLayer>> bind(const TokenShape& shape, const Numerics& numerics, const LayerMemory& memory,
                                           Device& device) const override {
    const auto head = shape_of(shape, numerics, device);
    if (!head) return tl::unexpected(head.error());
    auto tools = Tools::of(device);
    if (!tools) return tl::unexpected(tools.error());
    Layout saved(memory.saved), workspace(memory.workspace);
    const HeadBuffers buffers = head->place(saved, workspace);
    auto product = Linear::make(head->product, buffers.scratch, device);
    if (!product) return tl::unexpected(product.error());
    return std::make_unique<BoundHead>(*head, buffers, std::move(*tools), std::move(*product));
  }

 private:
  Result<HeadShape> shape_of(const TokenShape& shape, const Numerics& numerics, Device& device) const {
    const auto tools = Tools::of(device);
    if (!tools) return tl::unexpected(tools.error());
    HeadShape head;
    const std::vector<std::int64_t>& extents = params_.back().shape;
    head.product = {shape.tokens(), extents[1], extents[0], 1, numerics.compute, numerics.gradient};
    head.normed = normed_;
    head.eps = eps_;
    head.norm_scratch = normed_ ? tools->ops->rms_norm_scratch_bytes(shape.tokens(), extents[1]) : 0;
    const auto bytes = Linear::workspace_bytes(head.product, device);
    if (!bytes) return tl::unexpected(bytes.error());
    head.product_scratch = *bytes;
    return head;
  }

  std::string name_;
  bool normed_;
  float eps_;
  std::vector<ParamSpec> params_;
};

}  // namespace

std::unique_ptr<Layer> make_embedding(std::string name, ParamSpec table) {
  return std::make_unique<EmbeddingLayer>(std::move(name), std::move(table));
}

std::unique_ptr<Layer> make_head(std::string name, std::optional<ParamSpec> gain, ParamSpec weight, float eps) {
  return std::make_unique<HeadLayer>(std::move(name), std::move(gain), std::move(weight), eps);
}

}  // namespace attnbench::fsdp
