// A step: performs the actions of the schedule one after the other, then the update.
#include <algorithm>
#include <optional>
#include <utility>

#include "fsdp/engine.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;

/// Times what is done when the call returns; on a queue beside compute there is nothing to time.
class OffTimed {
 public:
  OffTimed(Flow& flow, double& target) {
    if (flow.queues() == nullptr) timed_.emplace(flow, target);
  }

 private:
  std::optional<Timed> timed_;
};

}  // namespace

Result<void> Engine::forward_backward(std::span<const TokenBatch> micro_batches) {
  if (auto ok = stage(micro_batches); !ok) return ok;
  times_ = {};
  if (auto ok = flow_->begin(); !ok) return ok;
  timeline_.clear();
  moments_.clear();
  if (copies_stale_) {
    if (auto ok = refresh_copies(); !ok) return ok;
  }
  unsettled_ = flow_->queues() != nullptr;
  auto ok = run_actions(schedule_.actions);
  if (!ok) communicator_.abort(ok.error());
  return ok;
}

Result<void> Engine::finish_gradient_synchronization() {
  has_gradients_ = true;
  return run_actions(schedule_.drain);
}

Result<void> Engine::run_actions(std::span<const Action> actions) {
  for (const Action& action : actions) {
    const Flow::Moment begin = flow_->last();
    if (auto ok = perform(action); !ok) return ok;
    timeline_.push_back({action, {}, {}});
    moments_.emplace_back(begin, flow_->last());
  }
  return {};
}

/// Keeps the step's tokens where the device may read them at any time from now on.
Result<void> Engine::stage(std::span<const TokenBatch> micro_batches) {
  ATTNBENCH_ENSURE(static_cast<int>(micro_batches.size()) == options_.micro_batches,
                   "a step gets as many micro-batches as the options say");
  std::copy(micro_batches.begin(), micro_batches.end(), batches_.begin());
  if (staging_ == nullptr) return {};
  if (unsettled_) {
    if (auto ok = device_.synchronize(); !ok) return ok;
    unsettled_ = false;
  }
  const auto tokens = static_cast<std::size_t>(tokens_.tokens());
  auto* at = reinterpret_cast<std::int32_t*>(staging_ + kVerdictNumbers * sizeof(double));
  for (TokenBatch& batch : batches_) {
    for (const std::int32_t** const values : {&batch.tokens, &batch.targets}) {
      std::copy_n(*values, tokens, at);
      *values = at;
      at += tokens;
    }
  }
  return {};
}

Result<void> Engine::upload_tokens(int micro) {
  const TokenBatch& batch = batches_[static_cast<std::size_t>(micro)];
  const std::size_t bytes = static_cast<std::size_t>(tokens_.tokens()) * sizeof(std::int32_t);
  const std::pair<void*, const void*> copies[] = {{memory_.tokens, batch.tokens}, {memory_.targets, batch.targets}};
  for (const auto& [target, source] : copies) {
    kernels::Queues* const queues = flow_->queues();
    auto ok = queues != nullptr ? queues->copy(target, source, bytes, Queue::kCompute)
                                : device_.upload(target, source, bytes);
    if (!ok) return ok;
  }
  return {};
}

Result<void> Engine::perform(const Action& action) {
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
      return release(action);
    case ActionKind::kForward:
      return forward(action);
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
  if (ticket.number == 0) return {};
  const Timed timed(*flow_, times_.stalls_s[static_cast<std::size_t>(cause)]);
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
  // The slot is free when all that was enqueued so far is done.
  auto ok = flow_->order(Queue::kGather, Queue::kCompute);
  if (ok) ok = gather_segment(unit.trainable, memory_.trainable, stage.weights, stage.gathers[0], unit.name);
  if (ok) ok = gather_segment(unit.frozen, memory_.frozen, stage.weights, stage.gathers[1], unit.name);
  return ok;
}

Result<void> Engine::gather_segment(const Segment& segment, const float* kept, std::byte* weights, Ticket& ticket,
                                    std::string_view label) {
  if (segment.padded == 0) return {};
  const std::size_t element = kernels::size_of(options_.param_dtype);
  std::byte* const target = weights + static_cast<std::size_t>(segment.offset) * element;
  const std::size_t part_bytes = static_cast<std::size_t>(segment.part) * element;
  {
    const OffTimed timed(*flow_, times_.pack_s);
    const auto rank = static_cast<std::size_t>(communicator_.world().rank);
    auto ok = ops_->run(kernels::Cast{target + rank * part_bytes, options_.param_dtype, kept + segment.store,
                                      Dtype::kFp32, segment.part},
                        Queue::kGather);
    if (!ok) return ok;
  }
  Collective collective;
  collective.label = label;
  collective.data = target;
  collective.part_bytes = part_bytes;
  ticket = communicator_.post(Channel::kGather, collective);
  return {};
}

Result<void> Engine::release(const Action& action) {
  const auto layer = static_cast<std::size_t>(action.layer);
  Stage& stage = stages_[layer];
  Result<void> ok;
  if (options_.poison) {
    ok = ops_->run(kernels::FillNan{stage.weights, options_.param_dtype, layout_.units[layer].padded()});
  }
  stage.weights = nullptr;
  stage.arrived = false;
  return ok;
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

Result<void> Engine::forward(const Action& action) {
  const auto layer = static_cast<std::size_t>(action.layer);
  if (layer == 0) {
    if (auto ok = upload_tokens(action.micro); !ok) return ok;
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
  const Timed timed(*flow_, times_.forward_s);
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
      auto ok = flow_->fill(target, 0, static_cast<std::size_t>(param.elements) * element, Queue::kCompute);
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
    return flow_->fill(gradients + static_cast<std::size_t>(begin) * element, 0,
                       static_cast<std::size_t>(stop - begin) * element, Queue::kReduce);
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
  const Timed timed(*flow_, times_.backward_s);
  return stage.layer->backward(call);
}

/// Whole gradients as they travel: gaps cleared, rounded to the reduce type.
Result<void> Engine::pack(const Unit& unit, const Action& action, void*& data) {
  const OffTimed timed(*flow_, times_.pack_s);
  auto ok = flow_->order(Queue::kReduce, Queue::kCompute);
  if (ok) ok = clear_gaps(unit, static_cast<std::byte*>(data));
  if (!ok || options_.reduce_dtype == gradient_dtype(options_)) return ok;
  void* const packed = memory_.packs[static_cast<std::size_t>(action.pack)];
  ok = ops_->run(kernels::Cast{packed, options_.reduce_dtype, data, gradient_dtype(options_), unit.trainable.padded},
                 Queue::kReduce);
  data = packed;
  return ok;
}

Result<void> Engine::reduce(const Action& action) {
  const auto layer = static_cast<std::size_t>(action.layer);
  const Unit& unit = layout_.units[layer];
  Stage& stage = stages_[layer];
  void* data = stage.gradients;
  if (auto ok = pack(unit, action, data); !ok) return ok;
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
      auto ok = ops_->run(kernels::Cast{copy, options_.param_dtype, memory_.trainable + unit.trainable.store,
                                        Dtype::kFp32, unit.trainable.padded},
                          Queue::kCompute);
      if (!ok) return ok;
    }
    if (unit.frozen.padded > 0) {
      auto ok =
          ops_->run(kernels::Cast{copy + static_cast<std::size_t>(unit.frozen.offset) * element, options_.param_dtype,
                                  memory_.frozen + unit.frozen.store, Dtype::kFp32, unit.frozen.padded},
                    Queue::kCompute);
      if (!ok) return ok;
    }
  }
  return {};
}

}  // namespace attnbench::fsdp
