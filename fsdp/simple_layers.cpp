// Layers of one operation each: norm, product, ReLU.
#include <utility>

#include "fsdp/layers.hpp"
#include "fsdp/tools.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;
using kernels::GradOut;

/// What the three have in common: a name, at most one parameter, rows in and rows out.
class Simple : public Layer {
 public:
  Simple(std::string name, std::vector<ParamSpec> params, std::int64_t in, std::int64_t out)
      : in_(in), out_(out), name_(std::move(name)), params_(std::move(params)) {}

  std::string_view name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }

 protected:
  LayerPlan rows_plan(const TokenShape& shape) const {
    LayerPlan plan;
    plan.in_elements = shape.tokens() * in_;
    plan.out_elements = shape.tokens() * out_;
    return plan;
  }

  std::int64_t in_, out_;

 private:
  std::string name_;
  std::vector<ParamSpec> params_;
};

class BoundNorm : public BoundLayer {
 public:
  BoundNorm(std::int64_t rows, std::int64_t width, float eps, const Numerics& numerics, float* inverse, void* scratch,
            Tools tools)
      : rows_(rows),
        width_(width),
        eps_(eps),
        numerics_(numerics),
        inverse_(inverse),
        scratch_(scratch),
        tools_(std::move(tools)) {}

  Result<void> forward(const LayerForward& call) override {
    return tools_.ops->run(
        kernels::RmsNorm{numerics_.compute, rows_, width_, eps_, call.in, call.params[0], call.out, inverse_});
  }

  Result<void> backward(const LayerBackward& call) override {
    const GradTarget& grad = call.grads[0];
    return tools_.ops->run(kernels::RmsNormBackward{numerics_.compute, rows_, width_, call.in, call.params[0], inverse_,
                                                    call.dout, nullptr, call.din,
                                                    GradOut{grad.data, numerics_.gradient, grad.accumulate}, scratch_});
  }

 private:
  std::int64_t rows_, width_;
  float eps_;
  Numerics numerics_;
  float* inverse_;
  void* scratch_;
  Tools tools_;
};

class NormLayer : public Simple {
 public:
  NormLayer(std::string name, const ParamSpec& gain, float eps)
      : Simple(std::move(name), {gain}, gain.shape[0], gain.shape[0]), eps_(eps) {}

  Result<LayerPlan> plan(const TokenShape& shape, const Numerics&, Device& device) const override {
    const auto tools = Tools::of(device);
    if (!tools) return tl::unexpected(tools.error());
    LayerPlan plan = rows_plan(shape);
    plan.saved_bytes = static_cast<std::size_t>(shape.tokens()) * sizeof(float);
    plan.workspace_bytes = tools->ops->rms_norm_scratch_bytes(shape.tokens(), in_);
    return plan;
  }

  Result<std::unique_ptr<BoundLayer>> bind(const TokenShape& shape, const Numerics& numerics, const LayerMemory& memory,
                                           Device& device) const override {
    auto tools = Tools::of(device);
    if (!tools) return tl::unexpected(tools.error());
    return std::make_unique<BoundNorm>(shape.tokens(), in_, eps_, numerics, static_cast<float*>(memory.saved),
                                       memory.workspace, std::move(*tools));
  }

 private:
  float eps_;
};

class BoundLinear : public BoundLayer {
 public:
  explicit BoundLinear(Linear product) : product_(std::move(product)) {}

  Result<void> forward(const LayerForward& call) override {
    return product_.forward(call.params, call.in, nullptr, call.out);
  }

  Result<void> backward(const LayerBackward& call) override {
    if (auto ok = product_.weight_gradient(call.grads, call.dout, call.in); !ok) return ok;
    return product_.input_gradient(call.params, call.dout, call.din);
  }

 private:
  Linear product_;
};

class LinearLayer : public Simple {
 public:
  LinearLayer(std::string name, const ParamSpec& weight)
      : Simple(std::move(name), {weight}, weight.shape[1], weight.shape[0]) {}

  Result<LayerPlan> plan(const TokenShape& shape, const Numerics& numerics, Device& device) const override {
    const auto bytes = Linear::workspace_bytes(shape_of(shape, numerics), device);
    if (!bytes) return tl::unexpected(bytes.error());
    LayerPlan plan = rows_plan(shape);
    plan.workspace_bytes = *bytes;
    plan.forward_flop = shape_of(shape, numerics).flop();
    plan.backward_flop = 2 * plan.forward_flop;
    return plan;
  }

  Result<std::unique_ptr<BoundLayer>> bind(const TokenShape& shape, const Numerics& numerics, const LayerMemory& memory,
                                           Device& device) const override {
    auto product = Linear::make(shape_of(shape, numerics), memory.workspace, device);
    if (!product) return tl::unexpected(product.error());
    return std::make_unique<BoundLinear>(std::move(*product));
  }

 private:
  LinearShape shape_of(const TokenShape& shape, const Numerics& numerics) const {
    return {shape.tokens(), in_, out_, 1, numerics.compute, numerics.gradient};
  }
};

class BoundRelu : public BoundLayer {
 public:
  BoundRelu(std::int64_t elements, Dtype dtype, Tools tools)
      : elements_(elements), dtype_(dtype), tools_(std::move(tools)) {}

  Result<void> forward(const LayerForward& call) override {
    return tools_.ops->run(kernels::Relu{dtype_, elements_, call.in, call.out});
  }

  Result<void> backward(const LayerBackward& call) override {
    return tools_.ops->run(kernels::ReluBackward{dtype_, elements_, call.in, call.dout, call.din});
  }

 private:
  std::int64_t elements_;
  Dtype dtype_;
  Tools tools_;
};

class ReluLayer : public Simple {
 public:
  ReluLayer(std::string name, std::int64_t width) : Simple(std::move(name), {}, width, width) {}

  Result<LayerPlan> plan(const TokenShape& shape, const Numerics&, Device&) const override {
    LayerPlan plan = rows_plan(shape);
    plan.backward_reads_params = false;
    return plan;
  }

  Result<std::unique_ptr<BoundLayer>> bind(const TokenShape& shape, const Numerics& numerics, const LayerMemory&,
                                           Device& device) const override {
    auto tools = Tools::of(device);
    if (!tools) return tl::unexpected(tools.error());
    return std::make_unique<BoundRelu>(shape.tokens() * in_, numerics.compute, std::move(*tools));
  }
};

}  // namespace

std::unique_ptr<Layer> make_norm(std::string name, ParamSpec gain, float eps) {
  return std::make_unique<NormLayer>(std::move(name), gain, eps);
}

std::unique_ptr<Layer> make_linear(std::string name, ParamSpec weight) {
  return std::make_unique<LinearLayer>(std::move(name), weight);
}

std::unique_ptr<Layer> make_relu(std::string name, std::int64_t width) {
  return std::make_unique<ReluLayer>(std::move(name), width);
}

}  // namespace attnbench::fsdp
