// When things happen on a device: by the clock where work is done when a call returns, by marks on its queues where it
// runs behind its host.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/base/error.hpp"
#include "fsdp/communicator.hpp"
#include "kernels/device/device.hpp"
#include "kernels/device/queues.hpp"

namespace attnbench::fsdp {

using kernels::Queue;

/// The moments of one step, and the order of the device's queues. Allocates nothing after make().
class Flow {
 public:
  /// For a step of up to `moments` moments.
  static base::Result<Flow> make(Device& device, std::size_t moments);

  /// Null where work is done when a call returns.
  kernels::Queues* queues() const { return queues_; }

  /// A step begins: forgets all moments.
  base::Result<void> begin();
  /// The same step once more, in which nothing is asked for.
  void again() { began_ = Clock::now(); }

  using Moment = std::size_t;
  /// Now; on a queue, when the device comes by what was enqueued for compute last.
  Moment now();
  /// The moment that `from` ends in, taken where it begins.
  Moment last();
  /// The time between the two is added to `target` when the step has ended.
  void add(double& target, Moment from, Moment to) { spans_.push_back({&target, from, to}); }

  /// What is enqueued on `later` from now on starts after what `earlier` has now.
  base::Result<void> order(Queue later, Queue earlier);
  base::Result<void> fill(void* target, unsigned char value, std::size_t bytes, Queue queue);

  /// Waits for the device, and for the other ranks as long as the communicator does; then all times are known.
  base::Result<void> settle(Communicator& communicator);
  Clock::time_point at(Moment moment) const { return times_[moment]; }

 private:
  struct Span {
    double* target;
    Moment from, to;
  };

  Device* device_ = nullptr;
  kernels::Queues* queues_ = nullptr;
  std::vector<kernels::Mark> marks_, joints_;
  kernels::Mark end_ = nullptr;
  std::vector<Clock::time_point> times_;
  std::vector<Span> spans_;
  std::size_t used_ = 0, joint_ = 0;
  Clock::time_point began_;
};

/// Adds the time from here to the end of the scope.
class Timed {
 public:
  Timed(Flow& flow, double& target) : flow_(flow), target_(target), begin_(flow.last()) {}
  ~Timed() { flow_.add(target_, begin_, flow_.now()); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Flow& flow_;
  double& target_;
  Flow::Moment begin_;
};

}  // namespace attnbench::fsdp
