// A step: performs the actions of the schedule one after the other, then the update.
#include <algorithm>
#include <cmath>

#include "fsdp/engine.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

constexpr int kGrowAfter = 2000;   // good steps after which fp16's loss scale doubles
constexpr double kClipEps = 1e-6;  // as is custom: min(1, clip / (norm + 1e-6))

/// Adds the time from here to the end of the scope.
class Timed {
 public:
  explicit Timed(double& target) : target_(target) {}
  ~Timed() { target_ += seconds(Clock::now() - begin_); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& target_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

Result<StepReport> Engine::step(std::span<const TokenBatch> micro_batches) {
  if (auto ok = forward_backward(micro_batches); !ok) return tl::unexpected(ok.error());
  if (auto ok = finish_gradient_synchronization(); !ok) return tl::unexpected(ok.error());
  return optimizer_step();
}

Result<void> Engine::forward_backward(std::span<const TokenBatch> micro_batches) {
  ATTNBENCH_ENSURE(static_cast<int>(micro_batches.size()) == options_.micro_batches,
                   "a step gets as many micro-batches as the options say");
  times_ = {};
  step_began_ = Clock::now();
  timeline_.clear();
  if (copies_stale_) {
    if (auto ok = refresh_copies(); !ok) return ok;
  }
  for (const Action& action : schedule_.actions) {
    const Clock::time_point begin = Clock::now();
    if (auto ok = perform(action, micro_batches); !ok) {
      communicator_.abort(ok.error());
      return ok;
    }
    timeline_.push_back({action, begin, Clock::now()});
  }
  return {};
}

Result<void> Engine::finish_gradient_synchronization() {
  for (const Action& action : schedule_.drain) {
    const Clock::time_point begin = Clock::now();
    if (auto ok = perform(action, {}); !ok) return ok;
    timeline_.push_back({action, begin, Clock::now()});
  }
  has_gradients_ = true;
  return {};
}

Result<void> Engine::perform(const Action& action, std::span<const TokenBatch> micro_batches) {
  Stage& stage = stages_[static_cast<std::size_t>(action.layer)];
  switch (action.kind) {
    case ActionKind::kGather:
      return gather(action);
    case ActionKind::kAwaitGather:
      for (const Ticket ticket : stage.gathers) {
        if (auto ok = await(ticket, action.cause); !ok) return ok;
      }
      stage.arrived = true;
      return {};
    case ActionKind::kRelease:
      release(action);
      return {};
    case ActionKind::kForward:
      return forward(action, micro_batches);
    case ActionKind::kBackward:
      return backward(action);
    case ActionKind::kReduce:
      return reduce(action);
    case ActionKind::kAwaitReduce:
      return await(stage.reduction, action.cause);
  }
  return {};
}

Result<void> Engine::await(Ticket ticket, Cause cause) {
  const Timed timed(times_.stalls_s[static_cast<std::size_t>(cause)]);
  return communicator_.wait(ticket);
}

/// Rounds what this rank keeps into its place of the gathered buffer; the others' parts come around it.
Result<void> Engine::gather(const Action& action) {
  const auto layer = static_cast<std::size_t>(action.layer);
  const Unit& unit = layout_.units[layer];
  Stage& stage = stages_[layer];
  stage.weights =
      static_cast<std::byte*>(action.slot == kOwnMemory ? memory_.own_weights[layer]
                                                        : memory_.weight_slots[static_cast<std::size_t>(action.slot)]);
  stage.arrived = false;
  stage.gathers = {};
  gather_segment(unit.trainable, memory_.trainable, stage.weights, stage.gathers[0], unit.name);
  gather_segment(unit.frozen, memory_.frozen, stage.weights, stage.gathers[1], unit.name);
  return {};
}

void Engine::gather_segment(const Segment& segment, const float* kept, std::byte* weights, Ticket& ticket,
                            std::string_view label) {
  if (segment.padded == 0) return;
  const std::size_t element = kernels::size_of(options_.param_dtype);
  std::byte* const target = weights + static_cast<std::size_t>(segment.offset) * element;
  const std::size_t part_bytes = static_cast<std::size_t>(segment.part) * element;
  {
    const Timed timed(times_.pack_s);
    const auto rank = static_cast<std::size_t>(communicator_.world().rank);
    ops_->cast(target + rank * part_bytes, options_.param_dtype, kept + segment.store, Dtype::kFp32, segment.part);
  }
  Collective collective;
  collective.label = label;
  collective.data = target;
  collective.part_bytes = part_bytes;
  ticket = communicator_.post(Channel::kGather, collective);
}

void Engine::release(const Action& action) {
  const auto layer = static_cast<std::size_t>(action.layer);
  Stage& stage = stages_[layer];
  if (options_.poison) ops_->fill_nan(stage.weights, options_.param_dtype, layout_.units[layer].padded());
  stage.weights = nullptr;
  stage.arrived = false;
}

/// Where each parameter of the layer is now: in the gathered buffer of its owner, or in the weights themselves.
void Engine::point_at_weights(std::size_t layer) {
  const std::size_t element = kernels::size_of(options_.param_dtype);
  const bool ddp = options_.strategy == Strategy::kDdp;
  for (std::size_t i = 0; i < stages_[layer].params.size(); ++i) {
    const Placement& param = layout_.units[layer].params[i];
    const auto owner = static_cast<std::size_t>(param.owner);
    if (ddp && options_.param_dtype == Dtype::kFp32) {
      stages_[layer].params[i] = kept_values(param, Kept::kWeight);
      continue;
    }
    const std::byte* const base =
        ddp ? static_cast<const std::byte*>(memory_.own_weights[owner]) : stages_[owner].weights;
    const bool there = ddp || (base != nullptr && stages_[owner].arrived);
    stages_[layer].params[i] = there ? base + static_cast<std::size_t>(param.offset) * element : nullptr;
  }
}

Result<void> Engine::forward(const Action& action, std::span<const TokenBatch> micro_batches) {
  const auto layer = static_cast<std::size_t>(action.layer);
  if (layer == 0) {
    const TokenBatch& batch = micro_batches[static_cast<std::size_t>(action.micro)];
    const std::size_t bytes = static_cast<std::size_t>(tokens_.tokens()) * sizeof(std::int32_t);
    if (auto ok = device_.upload(memory_.tokens, batch.tokens, bytes); !ok) return ok;
    if (auto ok = device_.upload(memory_.targets, batch.targets, bytes); !ok) return ok;
  }
  point_at_weights(layer);
  Stage& stage = stages_[layer];
  for (const void* param : stage.params) {
    ATTNBENCH_ENSURE(param != nullptr, "a layer runs outside the window in which its weights are gathered");
  }
  LayerForward call;
  call.params = stage.params;
  call.in = layer == 0 ? nullptr : memory_.outputs[layer - 1];
  call.out = memory_.outputs[layer];
  call.tokens = memory_.tokens;
  call.targets = memory_.targets;
  call.loss = memory_.losses + action.micro;
  const Timed timed(times_.forward_s);
  return stage.layer->forward(call);
}

/// Says where each gradient goes: assigned by the first that writes it, added to by the others.
Result<void> Engine::prepare_gradients(const Action& action) {
  const auto layer = static_cast<std::size_t>(action.layer);
  const std::size_t element = kernels::size_of(gradient_dtype(options_));
  const Unit& unit = layout_.units[layer];
  Stage& stage = stages_[layer];
  const auto whole_gradients = [this](std::size_t owner) {
    return reduces_in_place(options_)
               ? reinterpret_cast<std::byte*>(memory_.gradient + layout_.units[owner].trainable.store)
               : static_cast<std::byte*>(memory_.own_gradients[owner]);
  };
  stage.gradients = action.slot == kOwnMemory
                        ? whole_gradients(layer)
                        : static_cast<std::byte*>(memory_.gradient_slots[static_cast<std::size_t>(action.slot)]);
  for (std::size_t i = 0; i < unit.params.size(); ++i) {
    const Placement& param = unit.params[i];
    stage.targets[i] = {};
    if (param.spec.frozen || param.elements == 0) continue;
    const auto owner = static_cast<std::size_t>(param.owner);
    std::byte* const base = owner == layer ? stage.gradients : whole_gradients(owner);
    std::byte* const target = base + static_cast<std::size_t>(param.offset) * element;
    char& written = stages_[owner].written[static_cast<std::size_t>(param.owner_param)];
    if (param.shared && written == 0) {
      auto ok = device_.fill_bytes(target, 0, static_cast<std::size_t>(param.elements) * element);
      if (!ok) return ok;
      written = 1;
    }
    stage.targets[i] = {target, written != 0};
    written = 1;
  }
  return {};
}

/// Elements between parameters: what an earlier layer left in the slot must not be reduced.
Result<void> Engine::clear_gaps(const Unit& unit, std::byte* gradients) {
  const std::size_t element = kernels::size_of(gradient_dtype(options_));
  std::int64_t end = 0;
  const auto clear = [&](std::int64_t begin, std::int64_t stop) -> Result<void> {
    if (begin >= stop) return {};
    return device_.fill_bytes(gradients + static_cast<std::size_t>(begin) * element, 0,
                              static_cast<std::size_t>(stop - begin) * element);
  };
  for (const Placement& param : unit.params) {
    if (param.tied || param.spec.frozen) continue;
    if (auto ok = clear(end, param.offset); !ok) return ok;
    end = param.offset + param.elements;
  }
  return clear(end, unit.trainable.padded);
}

Result<void> Engine::backward(const Action& action) {
  const auto layer = static_cast<std::size_t>(action.layer);
  Stage& stage = stages_[layer];
  const bool new_gradients = action.micro == 0 || !keeps_whole_gradients(options_);
  if (new_gradients && action.layer + 1 == static_cast<int>(stages_.size())) {
    for (Stage& each : stages_) std::fill(each.written.begin(), each.written.end(), char{0});
  }
  if (auto ok = prepare_gradients(action); !ok) return ok;
  point_at_weights(layer);
  ATTNBENCH_ENSURE(!plans_[layer].backward_reads_params ||
                       std::find(stage.params.begin(), stage.params.end(), nullptr) == stage.params.end(),
                   "a layer runs outside the window in which its weights are gathered");
  const bool last = layer + 1 == stages_.size();
  LayerBackward call;
  call.params = stage.params;
  call.grads = stage.targets;
  call.in = layer == 0 ? nullptr : memory_.outputs[layer - 1];
  call.dout = last ? nullptr : memory_.output_gradients[layer % 2];
  call.din = layer == 0 ? nullptr : memory_.output_gradients[(layer - 1) % 2];
  call.tokens = memory_.tokens;
  call.targets = memory_.targets;
  call.loss_scale = static_cast<float>(loss_scale_);
  const Timed timed(times_.backward_s);
  return stage.layer->backward(call);
}

Result<void> Engine::reduce(const Action& action) {
  const auto layer = static_cast<std::size_t>(action.layer);
  const Unit& unit = layout_.units[layer];
  Stage& stage = stages_[layer];
  void* data = stage.gradients;
  {
    const Timed timed(times_.pack_s);
    if (auto ok = clear_gaps(unit, stage.gradients); !ok) return ok;
    if (options_.reduce_dtype != gradient_dtype(options_)) {
      data = memory_.packs[static_cast<std::size_t>(action.pack)];
      ops_->cast(data, options_.reduce_dtype, stage.gradients, gradient_dtype(options_), unit.trainable.padded);
    }
  }
  Collective collective;
  const bool ddp = options_.strategy == Strategy::kDdp;
  collective.kind = ddp ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter;
  collective.label = unit.name;
  collective.data = data;
  collective.part_bytes = static_cast<std::size_t>(unit.trainable.part) * kernels::size_of(options_.reduce_dtype);
  collective.wire = options_.reduce_dtype;
  collective.out = memory_.gradient + unit.trainable.store;
  collective.accumulate = action.micro > 0 && !keeps_whole_gradients(options_);
  stage.reduction = communicator_.post(Channel::kReduce, collective);
  return {};
}

Result<void> Engine::refresh_copies() {
  copies_stale_ = false;
  if (options_.strategy != Strategy::kDdp || options_.param_dtype == Dtype::kFp32) return {};
  const std::size_t element = kernels::size_of(options_.param_dtype);
  for (std::size_t i = 0; i < layout_.units.size(); ++i) {
    const Unit& unit = layout_.units[i];
    auto* const copy = static_cast<std::byte*>(memory_.own_weights[i]);
    if (unit.trainable.padded > 0) {
      ops_->cast(copy, options_.param_dtype, memory_.trainable + unit.trainable.store, Dtype::kFp32,
                 unit.trainable.padded);
    }
    if (unit.frozen.padded > 0) {
      ops_->cast(copy + static_cast<std::size_t>(unit.frozen.offset) * element, options_.param_dtype,
                 memory_.frozen + unit.frozen.store, Dtype::kFp32, unit.frozen.padded);
    }
  }
  return {};
}

bool Engine::needs_norm() const {
  return options_.clip_norm > 0 || options_.report_norm || options_.param_dtype == Dtype::kFp16;
}

Result<StepReport> Engine::optimizer_step() {
  ATTNBENCH_ENSURE(has_gradients_, "optimizer_step comes after finish_gradient_synchronization");
  has_gradients_ = false;
  StepReport report;
  double squares = 0;
  if (needs_norm()) {
    const Timed timed(times_.optimizer_s);
    squares = ops_->sum_of_squares(memory_.gradient, layout_.trainable_kept);
  }
  if (auto ok = exchange_numbers(squares); !ok) return tl::unexpected(ok.error());
  double total = 0;
  const auto ranks = static_cast<std::size_t>(layout_.world);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double* const numbers = memory_.numbers + rank * kStepNumbers;
    total += layout_.replicated && rank > 0 ? 0 : numbers[0];
    report.loss += numbers[1] / static_cast<double>(layout_.world);
  }
  const double norm = std::sqrt(total) * gradient_scale();
  if (needs_norm()) report.gradient_norm = norm;
  update(norm, report);
  if (copies_stale_) {
    const Timed timed(times_.optimizer_s);
    if (auto ok = refresh_copies(); !ok) return tl::unexpected(ok.error());
  }
  times_.total_s = seconds(Clock::now() - step_began_);
  report.times = times_;
  return report;
}

void Engine::update(double norm, StepReport& report) {
  const Timed timed(times_.optimizer_s);
  if (options_.param_dtype == Dtype::kFp16 && !std::isfinite(norm)) {
    report.skipped = true;
    loss_scale_ /= 2;
    good_steps_ = 0;
    return;
  }
  double scale = gradient_scale();
  if (options_.clip_norm > 0) scale *= std::min(1.0, options_.clip_norm / (norm + kClipEps));
  ++steps_;
  ops_->update(options_.optimizer, {steps_, scale},
               {memory_.trainable, memory_.gradient, memory_.first, memory_.second, layout_.trainable_kept});
  copies_stale_ = true;
  if (options_.param_dtype == Dtype::kFp16 && ++good_steps_ == kGrowAfter) {
    loss_scale_ *= 2;
    good_steps_ = 0;
  }
}

/// Squared norm and loss of every rank, to every rank.
Result<void> Engine::exchange_numbers(double squares) {
  double* const mine = memory_.numbers + static_cast<std::size_t>(communicator_.world().rank) * kStepNumbers;
  const Timed timed(times_.numbers_s);
  std::array<double, kStepNumbers> numbers{squares};
  for (int micro = 0; micro < options_.micro_batches; ++micro) {
    float loss = 0;
    if (auto ok = device_.download(&loss, memory_.losses + micro, sizeof loss); !ok) return ok;
    numbers[1] += static_cast<double>(loss) / options_.micro_batches;
  }
  std::copy(numbers.begin(), numbers.end(), mine);
  Collective collective;
  collective.kind = CollectiveKind::kExchange;
  collective.label = "norm and loss";
  collective.data = memory_.numbers;
  collective.part_bytes = kStepNumbers * sizeof(double);
  return communicator_.wait(communicator_.post(Channel::kReduce, collective));
}

}  // namespace attnbench::fsdp
