// The plain training loop, written for reading.
#include "plain_trainer.hpp"

#include <algorithm>
#include <cmath>

namespace attnbench::fsdp {

using base::Result;

std::vector<float> widened(const void* data, Dtype dtype, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    switch (dtype) {
      case Dtype::kFp32:
        values[i] = static_cast<const float*>(data)[i];
        break;
      case Dtype::kBf16:
        values[i] = kernels::to_float(static_cast<const kernels::Bf16*>(data)[i]);
        break;
      case Dtype::kFp16:
        values[i] = kernels::to_float(static_cast<const kernels::Fp16*>(data)[i]);
        break;
    }
  }
  return values;
}

void rounded(const std::vector<float>& values, Dtype dtype, void* data) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case Dtype::kFp32:
        static_cast<float*>(data)[i] = values[i];
        break;
      case Dtype::kBf16:
        static_cast<kernels::Bf16*>(data)[i] = kernels::to_bf16(values[i]);
        break;
      case Dtype::kFp16:
        static_cast<kernels::Fp16*>(data)[i] = kernels::to_fp16(values[i]);
        break;
    }
  }
}

Result<std::unique_ptr<PlainTrainer>> PlainTrainer::make(Model model, const TokenShape& shape, const Numerics& numerics,
                                                         Device& device) {
  std::unique_ptr<PlainTrainer> trainer(new PlainTrainer(std::move(model), numerics, device));
  if (auto ok = trainer->allocate(shape); !ok) return tl::unexpected(ok.error());
  return trainer;
}

Result<void> PlainTrainer::allocate(const TokenShape& shape) {
  std::size_t workspace = 0;
  std::int64_t slope = 0;
  const auto take = [&](kernels::Buffer& buffer, std::size_t bytes) {
    auto made = device_.allocate(bytes);
    if (made) buffer = std::move(*made);
    return made ? Result<void>{} : tl::unexpected(made.error());
  };
  for (const auto& layer : model_.layers) {
    Part part;
    part.layer = layer.get();
    const auto plan = layer->plan(shape, numerics_, device_);
    if (!plan) return tl::unexpected(plan.error());
    part.plan = *plan;
    workspace = std::max(workspace, plan->workspace_bytes);
    slope = std::max({slope, plan->in_elements, plan->out_elements});
    Result<void> ok = take(part.saved, plan->saved_bytes);
    if (ok) ok = take(part.out, static_cast<std::size_t>(plan->out_elements) * kernels::size_of(numerics_.compute));
    for (const ParamSpec& spec : layer->params()) {
      const auto count = static_cast<std::size_t>(spec.elements());
      kernels::Buffer param, grad;
      if (ok) ok = take(param, count * kernels::size_of(numerics_.compute));
      if (ok && !spec.frozen) ok = take(grad, count * kernels::size_of(numerics_.gradient));
      part.param_pointers.push_back(param.data());
      part.targets.push_back({grad.data(), false});
      part.params.push_back(std::move(param));
      part.grads.push_back(std::move(grad));
      if (spec.tied_to.empty()) masters_.emplace(spec.name, std::vector<float>(count));
    }
    if (!ok) return ok;
    parts_.push_back(std::move(part));
  }
  Result<void> ok = take(workspace_, workspace);
  for (kernels::Buffer& each : slopes_) {
    if (ok) ok = take(each, static_cast<std::size_t>(slope) * kernels::size_of(numerics_.compute));
  }
  for (Part& part : parts_) {
    if (!ok) return ok;
    auto bound = part.layer->bind(shape, numerics_, {part.saved.data(), workspace_.data()}, device_);
    if (!bound) return tl::unexpected(bound.error());
    part.bound = std::move(*bound);
  }
  return ok;
}

void PlainTrainer::round_params() {
  for (Part& part : parts_) {
    const auto specs = part.layer->params();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const std::string& owner = specs[i].tied_to.empty() ? specs[i].name : specs[i].tied_to;
      rounded(masters_.at(owner), numerics_.compute, part.params[i].data());
    }
  }
}

Result<void> PlainTrainer::forward(const std::int32_t* tokens, const std::int32_t* targets) {
  round_params();
  const void* in = nullptr;
  for (Part& part : parts_) {
    LayerForward call;
    call.params = part.param_pointers;
    call.in = in;
    call.out = part.out.data();
    call.tokens = tokens;
    call.targets = targets;
    call.loss = &loss_;
    if (auto ok = part.bound->forward(call); !ok) return ok;
    in = part.out.data();
  }
  return {};
}

Result<void> PlainTrainer::backward(const std::int32_t* tokens, const std::int32_t* targets, float loss_scale) {
  for (std::size_t i = parts_.size(); i-- > 0;) {
    Part& part = parts_[i];
    const std::vector<const void*> nothing(part.params.size(), nullptr);
    LayerBackward call;
    call.params = part.plan.backward_reads_params ? part.param_pointers : nothing;
    call.grads = part.targets;
    call.in = i > 0 && part.plan.backward_reads_input ? parts_[i - 1].out.data() : nullptr;
    call.dout = part.plan.out_elements > 0 ? slopes_[(i + 1) % 2].data() : nullptr;
    call.din = part.plan.in_elements > 0 ? slopes_[i % 2].data() : nullptr;
    call.tokens = tokens;
    call.targets = targets;
    call.loss_scale = loss_scale;
    if (auto ok = part.bound->backward(call); !ok) return ok;
  }
  return {};
}

void PlainTrainer::collect_gradients(float loss_scale) {
  gradients_.clear();
  for (Part& part : parts_) {
    const auto specs = part.layer->params();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].frozen) continue;
      std::vector<float> grad =
          widened(part.grads[i].data(), numerics_.gradient, static_cast<std::size_t>(specs[i].elements()));
      auto& sum = gradients_[specs[i].tied_to.empty() ? specs[i].name : specs[i].tied_to];
      sum.resize(grad.size(), 0.0f);
      for (std::size_t j = 0; j < grad.size(); ++j) sum[j] += grad[j] / loss_scale;
    }
  }
}

Result<double> PlainTrainer::loss(const std::int32_t* tokens, const std::int32_t* targets) {
  if (auto ok = forward(tokens, targets); !ok) return tl::unexpected(ok.error());
  return double{loss_};
}

Result<double> PlainTrainer::run(const std::int32_t* tokens, const std::int32_t* targets, float loss_scale) {
  if (auto ok = forward(tokens, targets); !ok) return tl::unexpected(ok.error());
  if (auto ok = backward(tokens, targets, loss_scale); !ok) return tl::unexpected(ok.error());
  collect_gradients(loss_scale);
  return double{loss_};
}

double PlainTrainer::update(const AdamW& o) {
  double squares = 0;
  for (const auto& [name, grad] : gradients_) {
    for (const float g : grad) squares += double{g} * double{g};
  }
  const double norm = std::sqrt(squares);
  const double factor = o.clip > 0 ? std::min(1.0, o.clip / (norm + 1e-6)) : 1.0;
  ++step_;
  const double correction1 = 1 - std::pow(o.beta1, step_), correction2 = 1 - std::pow(o.beta2, step_);
  for (const auto& [name, grad] : gradients_) {
    std::vector<float>& weights = masters_.at(name);
    std::vector<float>& first = first_[name];
    std::vector<float>& second = second_[name];
    first.resize(grad.size(), 0.0f);
    second.resize(grad.size(), 0.0f);
    for (std::size_t i = 0; i < grad.size(); ++i) {
      const double g = double{grad[i]} * factor;
      const double m = o.beta1 * double{first[i]} + (1 - o.beta1) * g;
      const double v = o.beta2 * double{second[i]} + (1 - o.beta2) * g * g;
      const double decayed = double{weights[i]} * (1 - o.lr * o.weight_decay);
      weights[i] = static_cast<float>(decayed - o.lr * (m / correction1) / (std::sqrt(v / correction2) + o.eps));
      first[i] = static_cast<float>(m);
      second[i] = static_cast<float>(v);
    }
  }
  return norm;
}

}  // namespace attnbench::fsdp
