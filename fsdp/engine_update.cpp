// The end of a step: norm, clipping, update and report; and steps that are captured once and replayed.
#include <algorithm>

#include "fsdp/engine.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;

constexpr int kGrowAfter = 2000;        // good steps after which fp16's loss scale doubles
constexpr std::int64_t kStepsAsIs = 2;  // before one is captured: the first calls of libraries may allocate

kernels::OptimizerFactors factors_of(const OptimizerOptions& o) {
  return {o.kind == OptimizerKind::kAdamW, o.lr, o.beta1, o.beta2, o.eps, o.weight_decay};
}

}  // namespace

Result<StepReport> Engine::step(std::span<const TokenBatch> micro_batches) {
  if (may_replay()) return replay(micro_batches);
  if (auto ok = forward_backward(micro_batches); !ok) return tl::unexpected(ok.error());
  if (auto ok = finish_gradient_synchronization(); !ok) return tl::unexpected(ok.error());
  return optimizer_step();
}

/// Nothing in the list of actions depends on the host: the same work on the same memory, with factors on the device.
bool Engine::may_replay() const {
  return options_.replay && flow_->queues() != nullptr && communicator_.replays() && steps_ >= kStepsAsIs &&
         !copies_stale_;
}

Result<StepReport> Engine::replay(std::span<const TokenBatch> micro_batches) {
  if (auto ok = stage(micro_batches); !ok) return tl::unexpected(ok.error());
  if (graph_ == nullptr || graph_scale_ != loss_scale_) {
    graph_ = nullptr;
    graph_scale_ = loss_scale_;
    if (auto ok = flow_->queues()->begin_capture(); !ok) return tl::unexpected(ok.error());
    auto ok = flow_->begin();
    timeline_.clear();
    moments_.clear();
    if (ok) ok = run_actions(schedule_.actions);
    if (ok) ok = run_actions(schedule_.drain);
    if (ok) ok = enqueue_update();
    auto graph = flow_->queues()->end_capture();
    if (!ok) return tl::unexpected(ok.error());
    if (!graph) return tl::unexpected(graph.error());
    graph_ = std::move(*graph);
  }
  times_ = {};
  flow_->again();
  unsettled_ = true;
  if (auto ok = graph_->launch(); !ok) return tl::unexpected(ok.error());
  ++replayed_;
  return conclude();
}

Result<StepReport> Engine::optimizer_step() {
  ATTNBENCH_ENSURE(has_gradients_, "optimizer_step comes after finish_gradient_synchronization");
  has_gradients_ = false;
  if (auto ok = enqueue_update(); !ok) return tl::unexpected(ok.error());
  return conclude();
}

bool Engine::needs_norm() const {
  return options_.clip_norm > 0 || options_.report_norm || options_.param_dtype == Dtype::kFp16;
}

/// Norm, exchange, update and new copies; then the verdict on its way to the host.
Result<void> Engine::enqueue_update() {
  if (auto ok = exchange_numbers(); !ok) return ok;
  const Timed timed(*flow_, times_.optimizer_s);
  const kernels::OptimizerFactors factors = factors_of(options_.optimizer);
  auto ok =
      ops_->run(kernels::Judge{memory_.numbers, layout_.world, layout_.replicated, gradient_scale(), options_.clip_norm,
                               options_.param_dtype == Dtype::kFp16, factors, memory_.verdict});
  if (ok) {
    ok = ops_->run(kernels::Update{factors, memory_.verdict, memory_.trainable, memory_.gradient, memory_.first,
                                   memory_.second, layout_.trainable_kept});
  }
  if (ok) ok = refresh_copies();
  if (!ok || staging_ == nullptr) return ok;
  return flow_->queues()->copy(staging_, memory_.verdict, kVerdictNumbers * sizeof(double), Queue::kCompute);
}

/// Squared norm and loss of every rank, to every rank.
Result<void> Engine::exchange_numbers() {
  double* const mine = memory_.numbers + static_cast<std::size_t>(communicator_.world().rank) * kStepNumbers;
  {
    const Timed timed(*flow_, times_.optimizer_s);
    const float* const gradient = needs_norm() ? memory_.gradient : nullptr;
    auto ok = ops_->run(
        kernels::WriteNumbers{gradient, layout_.trainable_kept, memory_.losses, options_.micro_batches, mine});
    if (!ok) return ok;
  }
  const Timed timed(*flow_, times_.numbers_s);
  if (auto ok = flow_->order(Queue::kReduce, Queue::kCompute); !ok) return ok;
  Collective collective;
  collective.kind = CollectiveKind::kExchange;
  collective.label = "norm and loss";
  collective.data = memory_.numbers;
  collective.part_bytes = kStepNumbers * sizeof(double);
  return communicator_.wait(communicator_.post(Channel::kReduce, collective));
}

/// Waits for the device, and reads what it has concluded.
Result<StepReport> Engine::conclude() {
  const Flow::Moment end = flow_->last();
  if (auto ok = flow_->settle(communicator_); !ok) return tl::unexpected(ok.error());
  unsettled_ = false;
  ++steps_;
  const double* const verdict = staging_ == nullptr ? memory_.verdict : reinterpret_cast<const double*>(staging_);
  StepReport report;
  report.loss = verdict[kernels::kMeanLoss];
  if (needs_norm()) report.gradient_norm = verdict[kernels::kNorm];
  report.skipped = verdict[kernels::kApply] == 0;
  if (options_.param_dtype == Dtype::kFp16) adapt_loss_scale(report.skipped);
  for (std::size_t i = 0; i < timeline_.size(); ++i) {
    timeline_[i].begin = flow_->at(moments_[i].first);
    timeline_[i].end = flow_->at(moments_[i].second);
  }
  // The wall's time, so that what the host takes to start and to notice the end is in it.
  const Clock::time_point ended = staging_ == nullptr ? flow_->at(end) : Clock::now();
  times_.total_s = std::chrono::duration<double>(ended - flow_->at(0)).count();
  report.times = times_;
  return report;
}

void Engine::adapt_loss_scale(bool skipped) {
  if (skipped) {
    loss_scale_ /= 2;
    good_steps_ = 0;
  } else if (++good_steps_ == kGrowAfter) {
    loss_scale_ *= 2;
    good_steps_ = 0;
  }
}

}  // namespace attnbench::fsdp
