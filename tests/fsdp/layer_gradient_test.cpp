// Every layer, in every numerics: output and all gradients against differences of its formula in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bench/base/rng.hpp"
#include "kernels/device/cpu_device.hpp"
#include "plain_trainer.hpp"
#include "reference.hpp"

namespace attnbench::fsdp {
namespace {

constexpr std::int64_t kVocab = 37, kWidth = 16, kFf = 12, kHeads = 2;
constexpr TokenShape kShape{2, 6};

struct LayerCase {
  const char* name;
  std::unique_ptr<Layer> (*make)();
  ReferenceForward (*reference)();
};

BlockConfig block_config() {
  BlockConfig config;
  config.width = kWidth;
  config.ff = kFf;
  config.heads = kHeads;
  return config;
}

const LayerCase kCases[] = {
    {"embedding",
     [] {
       return make_embedding("e", {"table", {kVocab, kWidth}});
     },
     [] { return reference_embedding(kWidth); }},
    {"norm",
     [] {
       return make_norm("n", {"gain", {kWidth}});
     },
     [] { return reference_norm(kWidth, 1e-5); }},
    {"linear",
     [] {
       return make_linear("l", {"weight", {kFf, kWidth}});
     },
     [] { return reference_linear(kWidth, kFf); }},
    {"relu", [] { return make_relu("r", kWidth); }, [] { return reference_relu(); }},
    {"block", [] { return make_block("b", block_config(), block_params("", block_config())); },
     [] { return reference_block(block_config()); }},
    {"head",
     [] {
       return make_head("h", ParamSpec{"gain", {kWidth}}, {"weight", {kVocab, kWidth}});
     },
     [] { return reference_head(kWidth, kVocab, true, 1e-5); }},
    {"bare_head",
     [] {
       return make_head("h", std::nullopt, {"weight", {kVocab, kWidth}});
     },
     [] { return reference_head(kWidth, kVocab, false, 0); }},
};

float round_to(Dtype dtype, float value) {
  if (dtype == Dtype::kBf16) return kernels::to_float(kernels::to_bf16(value));
  if (dtype == Dtype::kFp16) return kernels::to_float(kernels::to_fp16(value));
  return value;
}

/// Values that the dtype holds exactly, so that both sides compute with the same numbers.
Values draw(std::size_t count, std::uint64_t stream, Dtype dtype, float mean = 0.0f, float deviation = 1.0f) {
  const base::Rng rng(7, stream);
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = double{round_to(dtype, mean + deviation * rng.normal(i))};
  return values;
}

struct Tensor {
  kernels::Buffer buffer;  // empty where the elements lie in another one's
  void* data = nullptr;
  Dtype dtype = Dtype::kFp32;
  std::size_t count = 0;

  Values values() const {
    const std::vector<float> wide = widened(data, dtype, count);
    return {wide.begin(), wide.end()};
  }
};

/// One layer with all memory around it; memory that is to be written is full of NaN before. `flat`: parameters and
/// gradients lie in one buffer each, as the engine has them, so that weights may be neighbours.
class LayerRun {
 public:
  LayerRun(const LayerCase& which, const Numerics& numerics, int threads, bool flat = false)
      : numerics_(numerics),
        device_(threads),
        layer_(which.make()),
        plan_(layer_->plan(kShape, numerics, device_).value()) {
    saved_ = tensor(plan_.saved_bytes / 4 + 1, Dtype::kFp32);
    workspace_ = tensor(plan_.workspace_bytes / 4 + 1, Dtype::kFp32);
    bound_ = layer_->bind(kShape, numerics, {saved_.data, workspace_.data}, device_).value();
    out_ = tensor(static_cast<std::size_t>(plan_.out_elements), numerics.compute);
    din_ = tensor(static_cast<std::size_t>(plan_.in_elements), numerics.compute);
    const auto elements = static_cast<std::size_t>(parameter_elements());
    if (flat) flat_params_ = tensor(elements, Dtype::kFp32);
    if (flat) flat_grads_ = tensor(elements, Dtype::kFp32);
    std::size_t offset = 0, grad_offset = 0;
    std::uint64_t stream = 1;
    for (const ParamSpec& spec : layer_->params()) {
      const bool gain = spec.shape.size() == 1;
      const auto count = static_cast<std::size_t>(spec.elements());
      const float deviation = gain ? 0.3f : 1.0f / std::sqrt(static_cast<float>(spec.shape.back()));
      call.params.push_back(draw(count, ++stream, numerics.compute, gain ? 1.0f : 0.0f, deviation));
      const Values nothing(count, std::nan(""));
      params_.push_back(flat ? placed(flat_params_, offset, call.params.back(), numerics.compute)
                             : filled(call.params.back(), numerics.compute));
      grads_.push_back(flat ? placed(flat_grads_, grad_offset, nothing, numerics.gradient)
                            : filled(nothing, numerics.gradient));
    }
    call.shape = kShape;
    call.in = draw(static_cast<std::size_t>(plan_.in_elements), 100, numerics.compute);
    in_ = filled(call.in, numerics.compute);
    dout = plan_.out_elements == 0 ? Values{1.0}
                                   : draw(static_cast<std::size_t>(plan_.out_elements), 101, numerics.compute);
    dout_ = filled(dout, numerics.compute);
    const base::Rng words(9, 9);
    for (std::uint64_t t = 0; t < static_cast<std::uint64_t>(kShape.tokens()); ++t) {
      call.tokens.push_back(static_cast<std::int32_t>(words.bits(t) % kVocab));
      call.targets.push_back(static_cast<std::int32_t>(words.bits(t + 1000) % kVocab));
    }
  }

  Values forward() {
    float loss = NAN;
    LayerForward args{pointers(), in_.data, out_.data, call.tokens.data(), call.targets.data(), &loss};
    const auto ok = bound_->forward(args);
    EXPECT_TRUE(ok) << ok.error().message;
    return plan_.out_elements > 0 ? out_.values() : Values{double{loss}};
  }

  void backward(bool accumulate, float loss_scale = 1.0f) {
    std::vector<GradTarget> targets;
    for (const Tensor& grad : grads_) targets.push_back({grad.data, accumulate});
    LayerBackward args;
    const auto params = pointers();
    if (plan_.backward_reads_params) args.params = params;
    args.grads = targets;
    args.in = plan_.backward_reads_input ? in_.data : nullptr;
    args.dout = dout_.data;
    args.din = din_.data;
    args.tokens = call.tokens.data();
    args.targets = call.targets.data();
    args.loss_scale = loss_scale;
    const auto ok = bound_->backward(args);
    EXPECT_TRUE(ok) << ok.error().message;
  }

  Values gradient(std::size_t param) const { return grads_[param].values(); }
  Values din() const { return din_.values(); }
  const LayerPlan& plan() const { return plan_; }
  const Layer& layer() const { return *layer_; }

  ReferenceCall call;
  Values dout;

 private:
  Tensor tensor(std::size_t count, Dtype dtype) { return filled(Values(count, std::nan("")), dtype); }
  Tensor filled(const Values& values, Dtype dtype) {
    Tensor made{device_.allocate(values.size() * kernels::size_of(dtype)).value(), nullptr, dtype, values.size()};
    made.data = made.buffer.data();
    rounded({values.begin(), values.end()}, dtype, made.data);
    return made;
  }
  /// The next part of `whole`, in multiples of 64 bytes.
  Tensor placed(Tensor& whole, std::size_t& offset, const Values& values, Dtype dtype) {
    Tensor made{{}, static_cast<std::byte*>(whole.data) + offset, dtype, values.size()};
    rounded({values.begin(), values.end()}, dtype, made.data);
    offset += (values.size() * kernels::size_of(dtype) + 63) / 64 * 64;
    return made;
  }
  std::int64_t parameter_elements() const {
    std::int64_t sum = 0;
    for (const ParamSpec& spec : layer_->params()) sum += spec.elements() + 16;
    return sum;
  }
  std::span<const void* const> pointers() {
    pointers_.clear();
    for (const Tensor& param : params_) pointers_.push_back(param.data);
    return pointers_;
  }

  Numerics numerics_;
  kernels::CpuDevice device_;
  std::unique_ptr<Layer> layer_;
  LayerPlan plan_;
  Tensor saved_, workspace_, in_, out_, dout_, din_, flat_params_, flat_grads_;
  std::vector<Tensor> params_, grads_;
  std::vector<const void*> pointers_;
  std::unique_ptr<BoundLayer> bound_;
};

/// Largest difference, relative to the largest value (to 1 where that is less).
double error_of(const Values& actual, const Values& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double here = std::abs(actual[i] - expected[i]);
    worst = here > worst || std::isnan(here) ? here : worst;
    if (std::isnan(worst)) return worst;
  }
  return worst / std::max(largest, 1e-3);
}

/// Rounding of the results, and of what layers round on their way: activations in the compute dtype.
double tolerance_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return 3e-6;
    case Dtype::kBf16:
      return 2e-2;
    case Dtype::kFp16:
      return 4e-3;
  }
  return 0;
}

struct Setting {
  const LayerCase* which;
  Numerics numerics;
  bool flat;
};

class LayerGradients : public ::testing::TestWithParam<Setting> {};

TEST_P(LayerGradients, AreTheDifferencesOfTheFormula) {
  const auto& [which, numerics, flat] = GetParam();
  LayerRun run(*which, numerics, 2, flat);
  const ReferenceForward reference = which->reference();
  const double tolerance = tolerance_of(numerics.compute);
  EXPECT_LE(error_of(run.forward(), reference(run.call)), tolerance);
  run.backward(false);
  for (std::size_t i = 0; i < run.call.params.size(); ++i) {
    const Values expected = difference_gradient(reference, run.call, run.call.params[i], run.dout);
    EXPECT_LE(error_of(run.gradient(i), expected), tolerance) << run.layer().params()[i].name;
  }
  if (run.plan().in_elements == 0) return;
  EXPECT_LE(error_of(run.din(), difference_gradient(reference, run.call, run.call.in, run.dout)), tolerance);
}

TEST_P(LayerGradients, AddUpWhereTheyAreAskedTo) {
  const auto& [which, numerics, flat] = GetParam();
  LayerRun run(*which, numerics, 1, flat);
  run.forward();
  run.backward(false);
  std::vector<Values> once;
  for (std::size_t i = 0; i < run.call.params.size(); ++i) once.push_back(run.gradient(i));
  const Values din = run.din();
  run.forward();
  run.backward(true);
  EXPECT_EQ(run.din(), din);
  for (std::size_t i = 0; i < once.size(); ++i) {
    Values twice = once[i];
    for (double& each : twice) each *= 2;
    EXPECT_LE(error_of(run.gradient(i), twice), numerics.gradient == Dtype::kFp32 ? 1e-6 : 1e-2)
        << run.layer().params()[i].name;
  }
}

TEST_P(LayerGradients, AreTheSameBitsOnAnyNumberOfThreads) {
  const auto& [which, numerics, flat] = GetParam();
  LayerRun one(*which, numerics, 1, flat), four(*which, numerics, 4, flat);
  EXPECT_EQ(one.forward(), four.forward());
  one.backward(false);
  four.backward(false);
  for (std::size_t i = 0; i < one.call.params.size(); ++i) EXPECT_EQ(one.gradient(i), four.gradient(i));
  EXPECT_EQ(one.din(), four.din());
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const LayerCase& each : kCases) {
    for (const Dtype compute : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
      for (const Dtype gradient : {Dtype::kFp32, compute}) {
        if (compute == Dtype::kFp32 && !all.empty() && all.back().which == &each) continue;  // the same twice
        all.push_back({&each, {compute, gradient, false, false}, false});
        if (each.name == std::string("block")) all.push_back({&each, {compute, gradient, false, false}, true});
      }
    }
  }
  for (const Dtype compute : {Dtype::kFp32, Dtype::kBf16}) {
    all.push_back({&kCases[4], {compute, Dtype::kFp32, true, false}, true});
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Setting>& info) {
  const Numerics& n = info.param.numerics;
  return std::string(info.param.which->name) + "_" + std::string(to_string(n.compute)) + "_grad_" +
         std::string(to_string(n.gradient)) + (n.checkpoint ? "_checkpointed" : "") + (info.param.flat ? "_flat" : "");
}

INSTANTIATE_TEST_SUITE_P(Layers, LayerGradients, ::testing::ValuesIn(settings()), name_of);

}  // namespace
}  // namespace attnbench::fsdp
