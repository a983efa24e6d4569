// Work queues of a device that runs behind its host, and marks that order and time them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/base/error.hpp"

namespace attnbench::kernels {

/// compute is Device::stream(); the others are for what travels while it computes.
enum class Queue : std::uint8_t { kCompute, kGather, kReduce };
inline constexpr std::size_t kQueues = 3;

/// A point of a queue (a CUDA event). Recorded again, it forgets the point before; who waits for that one still does.
struct MarkHandle;
using Mark = MarkHandle*;

/// order: cheap, has no time. time: also says when the device came by.
enum class MarkKind : std::uint8_t { kOrder, kTime };

/// Work that was captured once and is enqueued as one.
class Replay {
 public:
  virtual ~Replay() = default;
  /// On the compute queue.
  virtual base::Result<void> launch() = 0;
};

/// The queues of one Device. Several threads may use them, each with marks of its own. Nothing here waits on the host.
class Queues {
 public:
  virtual ~Queues() = default;

  /// The queue as the device's libraries take it (cudaStream_t).
  virtual void* stream(Queue queue) const = 0;
  /// Made before a run; they live as long as this.
  virtual base::Result<std::vector<Mark>> make_marks(std::size_t count, MarkKind kind) = 0;
  /// Host memory that copies read and write without a stop; lives as long as this.
  virtual base::Result<void*> make_staging(std::size_t bytes) = 0;

  virtual base::Result<void> record(Mark mark, Queue queue) = 0;
  /// What is enqueued on `queue` from now on starts after the mark, which may be another device's of this process.
  virtual base::Result<void> wait(Queue queue, Mark mark) = 0;
  /// Whether the device has come by.   Errors  those of the work before it
  virtual base::Result<bool> reached(Mark mark) = 0;
  /// Of two time marks that were reached.
  virtual base::Result<double> seconds_between(Mark from, Mark to) = 0;

  virtual base::Result<void> copy(void* target, const void* source, std::size_t bytes, Queue queue) = 0;
  virtual base::Result<void> fill(void* target, unsigned char value, std::size_t bytes, Queue queue) = 0;

  /// From here on work on all queues is written down, not run. No queue may wait for a mark from before.
  virtual base::Result<void> begin_capture() = 0;
  virtual base::Result<std::unique_ptr<Replay>> end_capture() = 0;
};

}  // namespace attnbench::kernels
