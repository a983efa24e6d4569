// Walks through the uses of weights in order, with a window of d uses ahead.
#include "fsdp/schedule.hpp"

#include <algorithm>
#include <array>

#include "fsdp/memory.hpp"

namespace attnbench::fsdp {
namespace {

constexpr int kNobody = -1;

/// One forward or backward of a layer.
struct Use {
  int layer = 0;
  int micro = 0;
  bool backward = false;
  bool gathers = false;
};

class Builder {
 public:
  Builder(std::span<const ScheduleLayer> layers, const EngineOptions& options)
      : layers_(layers), options_(options), state_(layers.size()) {
    int in_ring = 0, with_gradients = 0;
    for (const ScheduleLayer& layer : layers) {
      in_ring += layer.gathers && !layer.keeps_weights ? 1 : 0;
      with_gradients += layer.reduces && !layer.keeps_gradients ? 1 : 0;
    }
    slots_.assign(static_cast<std::size_t>(std::min(options.prefetch + 1, in_ring)), kNobody);
    const bool whole = keeps_whole_gradients(options);
    gradient_slots_.assign(static_cast<std::size_t>(whole ? 0 : std::min(gradient_slots(options), with_gradients)),
                           kNobody);
    for (int micro = 0; micro < options.micro_batches; ++micro) add_uses(micro);
  }

  Schedule build() {
    for (std::size_t use = 0; use < uses_.size(); ++use) {
      // Before the first layer computes, the whole window is started; later only its far end.
      const std::size_t depth = static_cast<std::size_t>(options_.prefetch);
      for (std::size_t ahead = use == 0 ? 0 : use + depth; ahead <= use + depth && ahead < uses_.size(); ++ahead) {
        gather(use, ahead);
      }
      await_gather(use);
      if (uses_[use].backward) {
        backward(use);
      } else {
        add(ActionKind::kForward, uses_[use]);
      }
    }
    release_all();
    drain();
    result_.gather_slots = static_cast<int>(slots_.size());
    result_.gradient_slots = static_cast<int>(gradient_slots_.size());
    return std::move(result_);
  }

 private:
  struct State {
    bool gathered = false;
    bool awaited = true;  // its gather
    int slot = kOwnMemory;
    bool reducing = false;
  };

  const ScheduleLayer& spec(int layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  State& state(int layer) { return state_[static_cast<std::size_t>(layer)]; }

  Action& add(ActionKind kind, const Use& use) {
    Action action;
    action.kind = kind;
    action.layer = use.layer;
    action.micro = use.micro;
    result_.actions.push_back(action);
    return result_.actions.back();
  }

  void add_uses(int micro) {
    const int count = static_cast<int>(layers_.size());
    for (int i = 0; i < count; ++i) uses_.push_back({i, micro, false, spec(i).gathers});
    for (int i = count - 1; i >= 0; --i) uses_.push_back({i, micro, true, spec(i).gathers && spec(i).backward_gathers});
  }

  /// The use at or after `from` that needs the layer's weights next.
  std::size_t next_use(int layer, std::size_t from) const {
    for (std::size_t use = from; use < uses_.size(); ++use) {
      if (uses_[use].layer == layer && uses_[use].gathers) return use;
    }
    return uses_.size();
  }

  /// A free slot, or that of the layer needed last (Belady's rule: with a window of d uses it never hits the window).
  std::size_t choose_slot(std::size_t now) const {
    std::size_t best = 0, best_use = 0;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot] == kNobody) return slot;
      const std::size_t use = next_use(slots_[slot], now);
      if (use >= best_use) best = slot, best_use = use;
    }
    return best;
  }

  void gather(std::size_t now, std::size_t ahead) {
    const Use& use = uses_[ahead];
    if (!use.gathers || state(use.layer).gathered) return;
    State& layer = state(use.layer);
    if (!spec(use.layer).keeps_weights) {
      const std::size_t slot = choose_slot(now);
      if (slots_[slot] != kNobody) release(slots_[slot], uses_[now].micro);
      slots_[slot] = use.layer;
      layer.slot = static_cast<int>(slot);
    }
    layer.gathered = true;
    layer.awaited = false;
    add(ActionKind::kGather, use).slot = layer.slot;
  }

  void release(int layer, int micro) {
    Action& action = add(ActionKind::kRelease, {layer, micro});
    action.slot = state(layer).slot;
    if (action.slot != kOwnMemory) slots_[static_cast<std::size_t>(action.slot)] = kNobody;
    state(layer) = State{.reducing = state(layer).reducing};
  }

  void release_all() {
    for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer) {
      if (state(layer).gathered) release(layer, options_.micro_batches - 1);
    }
  }

  void await_gather(std::size_t now) {
    const Use& use = uses_[now];
    State& layer = state(use.layer);
    if (!use.gathers || layer.awaited) return;
    layer.awaited = true;
    const Cause cause =
        any_gather_awaited_ ? (use.backward ? Cause::kBackwardGather : Cause::kForwardGather) : Cause::kFirstGather;
    any_gather_awaited_ = true;
    Action& action = add(ActionKind::kAwaitGather, use);
    action.slot = layer.slot;
    action.cause = cause;
  }

  void await_reduce(int layer, const Use& use) {
    if (!state(layer).reducing) return;
    state(layer).reducing = false;
    std::erase(reducing_, layer);
    Action& action = add(ActionKind::kAwaitReduce, {layer, use.micro});
    action.cause = Cause::kReduce;
  }

  void backward(std::size_t now) {
    const Use& use = uses_[now];
    const ScheduleLayer& layer = spec(use.layer);
    int slot = kOwnMemory;
    if (layer.reduces && !layer.keeps_gradients && !gradient_slots_.empty()) {
      slot = next_gradient_slot_;
      next_gradient_slot_ = (next_gradient_slot_ + 1) % static_cast<int>(gradient_slots_.size());
      int& holder = gradient_slots_[static_cast<std::size_t>(slot)];
      if (holder != kNobody) await_reduce(holder, use);
      holder = use.layer;
    }
    if (layer.reduces) await_reduce(use.layer, use);
    for (const int owner : layer.also_writes) await_reduce(owner, use);
    add(ActionKind::kBackward, use).slot = slot;
    const bool last = use.micro == options_.micro_batches - 1;
    if (layer.reduces && (last || !keeps_whole_gradients(options_))) reduce(use, slot);
  }

  void reduce(const Use& use, int slot) {
    int pack = 0;
    if (options_.reduce_dtype != gradient_dtype(options_)) {
      pack = next_pack_;
      next_pack_ = (next_pack_ + 1) % gradient_slots(options_);
      int& holder = packs_[static_cast<std::size_t>(pack)];
      if (holder != kNobody) await_reduce(holder, use);
      holder = use.layer;
    }
    Action& action = add(ActionKind::kReduce, use);
    action.slot = slot;
    action.pack = pack;
    state(use.layer).reducing = true;
    reducing_.push_back(use.layer);
    if (options_.prefetch == 0) await_reduce(use.layer, use);
  }

  void drain() {
    for (std::size_t i = 0; i < reducing_.size(); ++i) {
      Action action;
      action.kind = ActionKind::kAwaitReduce;
      action.layer = reducing_[i];
      action.micro = options_.micro_batches - 1;
      action.cause = i + 1 == reducing_.size() ? Cause::kLastReduce : Cause::kReduce;
      result_.drain.push_back(action);
    }
    if (!reducing_.empty()) return;
    const auto last = std::find_if(result_.actions.rbegin(), result_.actions.rend(),
                                   [](const Action& action) { return action.kind == ActionKind::kAwaitReduce; });
    if (last != result_.actions.rend()) last->cause = Cause::kLastReduce;
  }

  std::span<const ScheduleLayer> layers_;
  const EngineOptions& options_;
  std::vector<State> state_;
  std::vector<Use> uses_;
  std::vector<int> slots_;           // layer in each slot of weights
  std::vector<int> gradient_slots_;  // layer in each slot of gradients
  std::array<int, 2> packs_{kNobody, kNobody};
  std::vector<int> reducing_;  // layers whose reduction is not awaited, in order
  int next_gradient_slot_ = 0;
  int next_pack_ = 0;
  bool any_gather_awaited_ = false;
  Schedule result_;
};

}  // namespace

std::vector<ScheduleLayer> schedule_layers(const Layout& layout, std::span<const LayerPlan> plans,
                                           const EngineOptions& options) {
  std::vector<ScheduleLayer> layers(layout.units.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Unit& unit = layout.units[i];
    ScheduleLayer& layer = layers[i];
    layer.gathers = unit.padded() > 0 && options.strategy != Strategy::kDdp;
    layer.backward_gathers = plans[i].backward_reads_params;
    layer.reduces = unit.trainable.padded > 0;
    layer.keeps_weights = unit.tied_to || options.strategy == Strategy::kShardGradOp;
    layer.keeps_gradients = unit.tied_to;
    for (const Placement& param : unit.params) {
      if (param.owner != static_cast<int>(i) && !param.spec.frozen) layer.also_writes.push_back(param.owner);
    }
  }
  return layers;
}

Schedule make_schedule(std::span<const ScheduleLayer> layers, const EngineOptions& options) {
  return Builder(layers, options).build();
}

}  // namespace attnbench::fsdp
