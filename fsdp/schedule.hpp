// One training step as a list of actions, made before the first step: when weights are gathered and dropped, when
// gradients are reduced, and what computes in between. Pure: the engine performs the list, a simulator times it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fsdp/layer.hpp"
#include "fsdp/options.hpp"
#include "fsdp/shard.hpp"

namespace attnbench::fsdp {

enum class ActionKind : std::uint8_t {
  kGather,       // start to gather the layer's weights into a slot
  kAwaitGather,  // stand still until they are there
  kRelease,      // the layer's weights are dropped: its slot is needed, or the step ends
  kForward,
  kBackward,     // writes the layer's gradients into a gradient slot
  kReduce,       // start to reduce them over the ranks
  kAwaitReduce,  // stand still until that is done
};

/// Why the compute stands still; first_gather and last_reduce are the ends of a step, which nothing can hide.
enum class Cause : std::uint8_t { kFirstGather, kForwardGather, kBackwardGather, kReduce, kLastReduce };
inline constexpr std::size_t kCauses = 5;

constexpr std::string_view to_string(Cause cause) {
  constexpr std::string_view kNames[] = {"first_gather", "forward_gather", "backward_gather", "reduce", "last_reduce"};
  return kNames[static_cast<std::size_t>(cause)];
}

/// Slot of a unit that has memory of its own.
inline constexpr int kOwnMemory = -1;

struct Action {
  ActionKind kind = ActionKind::kForward;
  int layer = 0;
  int micro = 0;
  int slot = kOwnMemory;                // gather, release: of weights; backward, reduce: of gradients
  int pack = 0;                         // reduce: where they are rounded to the reduce type, if they are
  Cause cause = Cause::kForwardGather;  // of a wait
  bool operator==(const Action&) const = default;
};

/// What the schedule needs to know of a layer.
struct ScheduleLayer {
  bool gathers = false;           // its weights have to be gathered
  bool backward_gathers = false;  // in the backward too
  bool reduces = false;           // it has gradients of its own
  bool keeps_weights = false;     // gathered once, into memory of its own, and kept to the end of the step
  bool keeps_gradients = false;   // other layers add to its gradients, which have memory of their own
  std::vector<int> also_writes;   // earlier layers whose gradients its backward adds to
};

struct Schedule {
  std::vector<Action> actions;  // forward and backward of every micro-batch
  std::vector<Action> drain;    // what finish_gradient_synchronization waits for
  int gather_slots = 0;
  int gradient_slots = 0;
};

/// Layers as the schedule sees them under a strategy.
std::vector<ScheduleLayer> schedule_layers(const Layout& layout, std::span<const LayerPlan> plans,
                                           const EngineOptions& options);

/// The step. With d = options.prefetch, when a layer starts the gather of the layer d uses later is started; of the
/// d + 1 slots the one is taken whose layer is needed last, so that the turn from forward to backward gathers nothing
/// that is still there. Gradients alternate between two slots: a backward waits for the reduction before the last. With
/// d = 0 nothing overlaps: a gather is awaited when it was started, and so is a reduction.
///
/// Holds   at most d + 1 layers gathered (and those with memory of their own); every rank makes the same list
Schedule make_schedule(std::span<const ScheduleLayer> layers, const EngineOptions& options);

}  // namespace attnbench::fsdp
