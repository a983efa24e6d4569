// One rank of a sharded training run: gathers weights before they are used, drops them after, reduces gradients while
// the backward goes on, and updates the weights that this rank keeps.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/error.hpp"
#include "fsdp/arena.hpp"
#include "fsdp/communicator.hpp"
#include "fsdp/flow.hpp"
#include "fsdp/layer.hpp"
#include "fsdp/memory.hpp"
#include "fsdp/ops.hpp"
#include "fsdp/options.hpp"
#include "fsdp/schedule.hpp"
#include "fsdp/shard.hpp"

namespace attnbench::fsdp {

/// This rank's sequences of one micro-batch, on the host: `batch * seq` values each.
struct TokenBatch {
  const std::int32_t* tokens = nullptr;
  const std::int32_t* targets = nullptr;
};

/// Where the time of a step went on the thread (or the queue) that computes. Seconds. A device with queues packs beside
/// its compute: pack_s is 0 there.
struct StepTimes {
  double total_s = 0;
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  double pack_s = 0;     // casts into and out of what travels
  double numbers_s = 0;  // waiting for the norm and the loss of the others
  std::array<double, kCauses> stalls_s{};

  double stall(Cause cause) const { return stalls_s[static_cast<std::size_t>(cause)]; }
  /// The compute stood still for communication that something could have hidden: all causes but the ends of a step.
  double exposed_s() const;
};

struct StepReport {
  double loss = 0;                      // mean over the micro-batches of all ranks
  std::optional<double> gradient_norm;  // of the mean gradient, before clipping; absent where nothing needs it
  bool skipped = false;                 // fp16: a gradient was not finite
  StepTimes times;
};

/// One action as it happened.
struct TimelineEvent {
  Action action;
  Clock::time_point begin, end;
};

/// Driven by one thread. Every rank makes the same calls with the same options; a rank that differs ends the run.
///
/// Memory  all of it is allocated in make(); a step allocates nothing
/// Errors  of every call that talks to other ranks: kFailed with the rank and the collective, see Communicator
class Engine {
 public:
  /// Errors  kUsage: options that contradict each other; kUnsupported, kAbsent: of the layers; kOutOfMemory
  static base::Result<std::unique_ptr<Engine>> make(const Model& model, const TokenShape& tokens,
                                                    const EngineOptions& options, Device& device,
                                                    Communicator& communicator);
  /// Bytes that one of `world` ranks will need; `scratch_parts` of its transport. Errors as make(), but for memory.
  static base::Result<MemoryUse> predict(const Model& model, const TokenShape& tokens, const EngineOptions& options,
                                         int world, std::int64_t scratch_parts, Device& device);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Draws every weight from its normal distribution; the same model whatever the world size.
  base::Result<void> initialize(std::uint64_t seed);
  /// Sets a parameter of the model; `values` are all of its elements.
  ///
  /// Errors  kUsage: no parameter has that name, it is tied to another, or the count differs
  base::Result<void> set_parameter(std::string_view name, std::span<const float> values);

  enum class Kept { kWeight, kGradient };
  /// What this rank keeps of a parameter; `begin` is where that starts in it. A gradient is the sum over ranks and
  /// micro-batches times the loss scale: multiply it by gradient_scale(). Errors as set_parameter, and frozen ones.
  base::Result<std::vector<float>> read_kept(std::string_view name, Kept what, std::int64_t& begin) const;
  double gradient_scale() const;

  /// One micro-batch each: forward, backward, and the reductions on their way.
  base::Result<void> forward_backward(std::span<const TokenBatch> micro_batches);
  /// Waits for the reductions that are on their way: after it every rank has its gradients.
  base::Result<void> finish_gradient_synchronization();
  /// Norm, clipping and update; the loss of all ranks.
  base::Result<StepReport> optimizer_step();
  /// The three above.
  base::Result<StepReport> step(std::span<const TokenBatch> micro_batches);

  const MemoryUse& ledger() const { return arena_.ledger(); }
  const MemoryUse& predicted() const { return predicted_; }
  const Layout& layout() const { return layout_; }
  const Schedule& schedule() const { return schedule_; }
  /// Model FLOP of one rank's step.
  double flop() const;
  /// Actions of the last step, in order; known when the step has ended.
  std::span<const TimelineEvent> timeline() const { return timeline_; }
  /// Steps that were replayed from a graph so far.
  std::int64_t replayed() const { return replayed_; }
  /// Whether the padding of everything that this rank keeps is still 0.
  base::Result<bool> padding_is_zero() const;

 private:
  /// A layer and what it works on at the moment.
  struct Stage {
    std::unique_ptr<BoundLayer> layer;
    std::byte* weights = nullptr;    // gathered flat buffer; null outside its window
    bool arrived = false;            // its gather was awaited
    std::byte* gradients = nullptr;  // whole gradients that are being written or reduced
    std::array<Ticket, 2> gathers{};
    Ticket reduction;
    std::vector<const void*> params;
    std::vector<GradTarget> targets;
    std::vector<char> written;  // by parameter: this step (or micro-batch) has assigned its gradient
  };

  Engine(const TokenShape& tokens, const EngineOptions& options, Device& device, Communicator& communicator);
  base::Result<void> build(const Model& model);
  base::Result<void> bind(const Model& model);

  base::Result<void> perform(const Action& action);
  base::Result<void> gather(const Action& action);
  base::Result<void> gather_segment(const Segment& segment, const float* kept, std::byte* weights, Ticket& ticket,
                                    std::string_view label);
  base::Result<void> await(Ticket ticket, Cause cause);
  base::Result<void> release(const Action& action);
  base::Result<void> forward(const Action& action);
  base::Result<void> backward(const Action& action);
  base::Result<void> prepare_gradients(const Action& action);
  base::Result<void> clear_gaps(const Unit& unit, std::byte* gradients);
  base::Result<void> pack(const Unit& unit, const Action& action, void*& data);
  base::Result<void> reduce(const Action& action);
  void point_at_weights(std::size_t layer);
  base::Result<void> refresh_copies();
  base::Result<void> run_actions(std::span<const Action> actions);
  base::Result<void> enqueue_update();
  base::Result<void> exchange_numbers();
  base::Result<StepReport> conclude();
  void adapt_loss_scale(bool skipped);
  bool needs_norm() const;
  base::Result<void> stage(std::span<const TokenBatch> micro_batches);
  base::Result<void> upload_tokens(int micro);
  bool may_replay() const;
  base::Result<StepReport> replay(std::span<const TokenBatch> micro_batches);

  const Placement* find(std::string_view name) const;
  float* kept_values(const Placement& param, Kept what) const;

  TokenShape tokens_;
  EngineOptions options_;
  Device& device_;
  Communicator& communicator_;
  Layout layout_;
  std::vector<LayerPlan> plans_;
  std::vector<ScheduleLayer> layers_;
  Schedule schedule_;
  Arena arena_;
  MemoryUse predicted_;
  EngineMemory memory_;
  std::unique_ptr<Ops> ops_;
  std::vector<Stage> stages_;
  std::optional<Flow> flow_;
  std::vector<TimelineEvent> timeline_;
  std::vector<std::pair<Flow::Moment, Flow::Moment>> moments_;  // of the timeline's events
  StepTimes times_;
  std::vector<TokenBatch> batches_;  // of the step that runs
  std::byte* staging_ = nullptr;     // host memory that tokens and the verdict travel through; null without queues
  std::unique_ptr<kernels::Replay> graph_;
  double graph_scale_ = 0;  // loss scale in the graph
  std::int64_t steps_ = 0;  // that were concluded
  std::int64_t replayed_ = 0;
  bool unsettled_ = false;  // the device may still work on the last step
  double loss_scale_ = 1;
  int good_steps_ = 0;          // since the loss scale changed
  bool copies_stale_ = true;    // ddp below fp32: the copies that layers read are older than the weights
  bool has_gradients_ = false;  // forward_backward ran and its reductions were awaited
};

}  // namespace attnbench::fsdp
