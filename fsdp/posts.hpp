// The collectives that a communicator has enqueued on a device's queues: their marks, and their times once a step
// ended.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/base/error.hpp"
#include "fsdp/communicator.hpp"

namespace attnbench::fsdp {

class Observer;

/// A ring of marks for each channel. One thread posts and waits; the marks of a post may be recorded by another.
class Posts {
 public:
  static base::Result<Posts> make(kernels::Queues& queues);

  /// The next post of the channel. `ready` is recorded; whoever performs it records the others.
  base::Result<Ticket> begin(Channel channel, Collective& collective);
  const Collective& collective(Ticket ticket) const { return slot(ticket); }
  /// Compute goes on after it. Its done mark was recorded.
  base::Result<void> wait(Ticket ticket) { return queues_->wait(kernels::Queue::kCompute, slot(ticket).marks.done); }

  /// Waits until the device has come to the end, `deadline_s` seconds at the most; true if it has.
  base::Result<bool> reach(const Settling& settling, double deadline_s);
  /// Adds the times of everything posted since the last call, and tells the observer.
  base::Result<void> count(const Settling& settling, int world, Communicator::Totals& totals, Observer* observer);
  /// The oldest post of a channel that the device has not done; null if it has done all.
  base::Result<const Collective*> unfinished() const;

  kernels::Queues& queues() const { return *queues_; }

 private:
  struct Ring {
    std::vector<Collective> slots;  // with their marks
    std::uint64_t posted = 0;
    std::uint64_t counted = 0;
  };
  const Collective& slot(Ticket ticket) const;

  kernels::Queues* queues_ = nullptr;
  std::array<Ring, kChannels> rings_;
};

}  // namespace attnbench::fsdp
