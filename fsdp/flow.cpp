// Moments: times of the clock, or marks that have times once the device came by.
#include "fsdp/flow.hpp"

namespace attnbench::fsdp {

using base::Result;

namespace {
constexpr std::size_t kJoints = 16;  // a joint that is recorded again was waited for: any number above 1 will do
}

Result<Flow> Flow::make(Device& device, std::size_t moments) {
  Flow flow;
  flow.device_ = &device;
  flow.queues_ = device.queues();
  flow.times_.resize(moments);
  flow.spans_.reserve(moments);
  if (flow.queues_ == nullptr) return flow;
  auto marks = flow.queues_->make_marks(moments, kernels::MarkKind::kTime);
  auto joints = flow.queues_->make_marks(kJoints + 1, kernels::MarkKind::kOrder);
  if (!marks) return tl::unexpected(marks.error());
  if (!joints) return tl::unexpected(joints.error());
  flow.marks_ = std::move(*marks);
  flow.joints_ = std::move(*joints);
  flow.end_ = flow.joints_.back();
  return flow;
}

Result<void> Flow::begin() {
  used_ = 0;
  spans_.clear();
  began_ = Clock::now();
  now();
  return {};
}

Flow::Moment Flow::now() {
  ATTNBENCH_ENSURE(used_ < times_.size(), "a step has no more moments than its schedule says");
  if (queues_ != nullptr) {
    // A failure to record shows again in the work that follows it.
    (void)queues_->record(marks_[used_], Queue::kCompute);
  } else {
    times_[used_] = Clock::now();
  }
  return used_++;
}

Flow::Moment Flow::last() { return queues_ != nullptr ? used_ - 1 : now(); }

Result<void> Flow::order(Queue later, Queue earlier) {
  if (queues_ == nullptr) return {};
  const kernels::Mark joint = joints_[joint_];
  joint_ = (joint_ + 1) % kJoints;
  auto ok = queues_->record(joint, earlier);
  return ok ? queues_->wait(later, joint) : ok;
}

Result<void> Flow::fill(void* target, unsigned char value, std::size_t bytes, Queue queue) {
  if (queues_ == nullptr) return device_->fill_bytes(target, value, bytes);
  return queues_->fill(target, value, bytes, queue);
}

Result<void> Flow::settle(Communicator& communicator) {
  if (queues_ != nullptr) {
    auto ok = queues_->record(end_, Queue::kCompute);
    if (ok) ok = communicator.settle({end_, marks_[0], began_});
    if (!ok) return ok;
    for (std::size_t i = 0; i < used_; ++i) {
      const auto after = queues_->seconds_between(marks_[0], marks_[i]);
      if (!after) return tl::unexpected(after.error());
      times_[i] = began_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*after));
    }
  }
  for (const Span& span : spans_) {
    *span.target += std::chrono::duration<double>(times_[span.to] - times_[span.from]).count();
  }
  return {};
}

}  // namespace attnbench::fsdp
