// Making an engine, and what can be read from and written to it between steps.
#include "fsdp/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "fsdp/model.hpp"

namespace attnbench::fsdp {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

/// init_values, on all processors where they have nothing else to do. Ranks that are threads of a processor have.
void draw(const ParamSpec& spec, std::uint64_t seed, std::int64_t begin, std::span<float> values, bool together) {
  constexpr std::size_t kLeast = std::size_t{1} << 18;
  const std::size_t threads = together ? std::max(1U, std::thread::hardware_concurrency()) : 1;
  const std::size_t part = std::max(kLeast, (values.size() + threads - 1) / threads);
  std::vector<std::thread> running;
  for (std::size_t at = part; at < values.size(); at += part) {
    running.emplace_back([&, at] {
      init_values(spec, seed, begin + static_cast<std::int64_t>(at),
                  values.subspan(at, std::min(part, values.size() - at)));
    });
  }
  init_values(spec, seed, begin, values.first(std::min(part, values.size())));
  for (std::thread& thread : running) thread.join();
}

// Two for the timeline, four for what may be timed inside.
constexpr std::size_t kMomentsPerAction = 6;
constexpr std::size_t kMomentsPerStep = 16;

Result<void> check_options(const EngineOptions& options, int world) {
  if (options.prefetch < 0) return fail(ErrorKind::kUsage, "--prefetch is 0 or more layers");
  if (options.micro_batches < 1) return fail(ErrorKind::kUsage, "a step has one micro-batch at the least");
  if (options.reduce_dtype != Dtype::kFp32 && options.param_dtype != Dtype::kFp32 &&
      options.reduce_dtype != options.param_dtype) {
    return fail(ErrorKind::kUsage, fmt::format("gradients of {} weights are reduced in {} or in fp32, not in {}",
                                               to_string(options.param_dtype), to_string(options.param_dtype),
                                               to_string(options.reduce_dtype)));
  }
  if (options.strategy == Strategy::kDdp && options.micro_batches > 1 &&
      options.accumulation == Accumulation::kSharded) {
    return fail(ErrorKind::kUsage,
                fmt::format("ddp keeps whole gradients on each of the {} ranks, so it accumulates them there: take "
                            "--accumulation unsharded",
                            world));
  }
  return {};
}

/// Equal bits in every run are asked for: attention must not add gradients in whatever order they come.
Numerics numerics_of(const EngineOptions& options, Device& device) {
  return {options.param_dtype, gradient_dtype(options), options.checkpoint,
          options.deterministic && device.queues() != nullptr};
}

Result<std::vector<LayerPlan>> plan_layers(const Model& model, const TokenShape& tokens, const EngineOptions& options,
                                           Device& device) {
  std::vector<LayerPlan> plans;
  for (const auto& layer : model.layers) {
    const auto plan = layer->plan(tokens, numerics_of(options, device), device);
    if (!plan) return tl::unexpected(plan.error());
    plans.push_back(*plan);
  }
  return plans;
}

}  // namespace

double StepTimes::exposed_s() const {
  return stall(Cause::kForwardGather) + stall(Cause::kBackwardGather) + stall(Cause::kReduce);
}

Engine::Engine(const TokenShape& tokens, const EngineOptions& options, Device& device, Communicator& communicator)
    : tokens_(tokens), options_(options), device_(device), communicator_(communicator) {
  if (options.param_dtype == Dtype::kFp16) loss_scale_ = options.loss_scale;
}

Engine::~Engine() {
  if (unsettled_) (void)device_.synchronize();  // nothing may be freed that the device still works on
}

Result<std::unique_ptr<Engine>> Engine::make(const Model& model, const TokenShape& tokens, const EngineOptions& options,
                                             Device& device, Communicator& communicator) {
  if (auto ok = check_options(options, communicator.world().size); !ok) return tl::unexpected(ok.error());
  std::unique_ptr<Engine> engine(new Engine(tokens, options, device, communicator));
  if (auto ok = engine->build(model); !ok) return tl::unexpected(ok.error());
  return engine;
}

Result<MemoryUse> Engine::predict(const Model& model, const TokenShape& tokens, const EngineOptions& options, int world,
                                  std::int64_t scratch_parts, Device& device) {
  if (auto ok = check_options(options, world); !ok) return tl::unexpected(ok.error());
  const auto layout = make_layout(model, world, options.strategy == Strategy::kDdp);
  if (!layout) return tl::unexpected(layout.error());
  const auto plans = plan_layers(model, tokens, options, device);
  if (!plans) return tl::unexpected(plans.error());
  return predict_memory(*layout, *plans, tokens, options, scratch_parts);
}

Result<void> Engine::build(const Model& model) {
  auto layout = make_layout(model, communicator_.world().size, options_.strategy == Strategy::kDdp);
  if (!layout) return tl::unexpected(layout.error());
  layout_ = std::move(*layout);
  auto plans = plan_layers(model, tokens_, options_, device_);
  if (!plans) return tl::unexpected(plans.error());
  plans_ = std::move(*plans);
  layers_ = schedule_layers(layout_, plans_, options_);
  schedule_ = make_schedule(layers_, options_);
  predicted_ = predict_memory(layout_, plans_, tokens_, options_, communicator_.scratch_parts());
  auto memory = allocate_memory(arena_, layout_, plans_, schedule_, layers_, tokens_, options_,
                                communicator_.scratch_parts(), device_);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  ATTNBENCH_ENSURE(arena_.ledger() == predicted_, "the arena is not what the memory formula says");
  communicator_.set_scratch(memory_.scratch);
  auto ops = make_ops(device_, std::max(layout_.trainable_kept, layout_.frozen_kept));
  if (!ops) return tl::unexpected(ops.error());
  ops_ = std::move(*ops);
  const std::size_t actions = schedule_.actions.size() + schedule_.drain.size();
  timeline_.reserve(actions);
  moments_.reserve(actions);
  batches_.resize(static_cast<std::size_t>(options_.micro_batches));
  auto flow = Flow::make(device_, kMomentsPerAction * actions + kMomentsPerStep);
  if (!flow) return tl::unexpected(flow.error());
  flow_ = std::move(*flow);
  if (kernels::Queues* const queues = flow_->queues()) {
    const std::size_t tokens = 2 * batches_.size() * static_cast<std::size_t>(tokens_.tokens()) * sizeof(std::int32_t);
    auto staging = queues->make_staging(kVerdictNumbers * sizeof(double) + tokens);
    if (!staging) return tl::unexpected(staging.error());
    staging_ = static_cast<std::byte*>(*staging);
  }
  return bind(model);
}

Result<void> Engine::bind(const Model& model) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    auto layer =
        model.layers[i]->bind(tokens_, numerics_of(options_, device_), {memory_.saved[i], memory_.workspace}, device_);
    if (!layer) return tl::unexpected(layer.error());
    Stage stage;
    stage.layer = std::move(*layer);
    const std::size_t params = layout_.units[i].params.size();
    stage.params.resize(params);
    stage.targets.resize(params);
    stage.written.resize(params);
    stages_.push_back(std::move(stage));
  }
  return {};
}

const Placement* Engine::find(std::string_view name) const {
  for (const Unit& unit : layout_.units) {
    for (const Placement& param : unit.params) {
      if (param.spec.name == name && !param.tied) return &param;
    }
  }
  return nullptr;
}

float* Engine::kept_values(const Placement& param, Kept what) const {
  const KeptRange range = kept_range(layout_, param, communicator_.world().rank);
  float* const store = what == Kept::kGradient        ? memory_.gradient
                       : in_trainable(layout_, param) ? memory_.trainable
                                                      : memory_.frozen;
  return store + range.store;
}

Result<void> Engine::initialize(std::uint64_t seed) {
  std::vector<float> values;
  for (const Unit& unit : layout_.units) {
    for (const Placement& param : unit.params) {
      const KeptRange range = kept_range(layout_, param, communicator_.world().rank);
      if (param.tied || range.begin == range.end) continue;
      values.resize(static_cast<std::size_t>(range.end - range.begin));
      draw(param.spec, seed, range.begin, values, flow_->queues() != nullptr);
      auto ok = device_.upload(kept_values(param, Kept::kWeight), values.data(), values.size() * sizeof(float));
      if (!ok) return ok;
    }
  }
  copies_stale_ = true;
  return {};
}

Result<void> Engine::set_parameter(std::string_view name, std::span<const float> values) {
  const Placement* const param = find(name);
  if (param == nullptr) return fail(ErrorKind::kUsage, fmt::format("the model has no parameter {} of its own", name));
  if (static_cast<std::int64_t>(values.size()) != param->elements) {
    return fail(ErrorKind::kUsage, fmt::format("{} has {} elements, not {}", name, param->elements, values.size()));
  }
  copies_stale_ = true;
  const KeptRange range = kept_range(layout_, *param, communicator_.world().rank);
  if (range.begin == range.end) return {};
  return device_.upload(kept_values(*param, Kept::kWeight), values.data() + range.begin,
                        static_cast<std::size_t>(range.end - range.begin) * sizeof(float));
}

Result<std::vector<float>> Engine::read_kept(std::string_view name, Kept what, std::int64_t& begin) const {
  const Placement* const param = find(name);
  if (param == nullptr) return fail(ErrorKind::kUsage, fmt::format("the model has no parameter {} of its own", name));
  if (what == Kept::kGradient && !in_trainable(layout_, *param)) {
    return fail(ErrorKind::kUsage, fmt::format("{} is frozen: it has no gradient", name));
  }
  const KeptRange range = kept_range(layout_, *param, communicator_.world().rank);
  begin = range.begin;
  std::vector<float> values(static_cast<std::size_t>(range.end - range.begin));
  if (values.empty()) return values;
  auto ok = device_.download(values.data(), kept_values(*param, what), values.size() * sizeof(float));
  if (!ok) return tl::unexpected(ok.error());
  return values;
}

double Engine::gradient_scale() const {
  return 1.0 / (static_cast<double>(layout_.world) * options_.micro_batches * loss_scale_);
}

double Engine::flop() const {
  double flop = 0;
  for (const LayerPlan& plan : plans_) flop += plan.forward_flop + plan.backward_flop;
  return flop * options_.micro_batches;
}

Result<bool> Engine::padding_is_zero() const {
  std::vector<float> all(static_cast<std::size_t>(layout_.trainable_kept));
  for (const float* store : {memory_.trainable, memory_.first, memory_.second, memory_.gradient}) {
    if (store == nullptr || all.empty()) continue;
    auto ok = device_.download(all.data(), store, all.size() * sizeof(float));
    if (!ok) return tl::unexpected(ok.error());
    for (const Unit& unit : layout_.units) {
      for (const Placement& param : unit.params) {
        const KeptRange range = kept_range(layout_, param, communicator_.world().rank);
        if (param.tied || param.spec.frozen) continue;
        std::fill_n(all.begin() + range.store, range.end - range.begin, 0.0f);
      }
    }
    if (std::any_of(all.begin(), all.end(), [](float value) { return value != 0.0f; })) return false;
  }
  return true;
}

}  // namespace attnbench::fsdp
