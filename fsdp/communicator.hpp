// What the engine needs of other ranks: two independent queues of collectives, each done in the order it was posted.
// One implementation per file; the engine sees this header alone.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "bench/base/error.hpp"
#include "fsdp/layer.hpp"
#include "kernels/device/queues.hpp"

namespace attnbench::fsdp {

using Clock = std::chrono::steady_clock;

/// Weights travel on one channel and gradients on the other, so that neither waits behind the other.
enum class Channel : std::uint8_t { kGather, kReduce };
inline constexpr std::size_t kChannels = 2;

/// The queue in which the caller prepares what it posts, on a device that has queues.
constexpr kernels::Queue queue_of(Channel channel) {
  return channel == Channel::kGather ? kernels::Queue::kGather : kernels::Queue::kReduce;
}

constexpr std::string_view to_string(Channel channel) { return channel == Channel::kGather ? "gather" : "reduce"; }

/// kExchange: an all-gather of a few numbers, counted apart from that of weights.
enum class CollectiveKind : std::uint8_t { kAllGather, kReduceScatter, kAllReduce, kExchange };
inline constexpr std::size_t kCollectiveKinds = 4;

constexpr std::string_view to_string(CollectiveKind kind) {
  constexpr std::string_view kNames[] = {"all-gather", "reduce-scatter", "all-reduce", "exchange"};
  return kNames[static_cast<std::size_t>(kind)];
}

constexpr bool gathers(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kExchange;
}

/// Points of a collective on its queue: its data is ready, it began, this rank has read the others' memory, it is done.
struct CollectiveMarks {
  kernels::Mark ready = nullptr, begun = nullptr, moved = nullptr, done = nullptr;
};

/// One collective. Memory belongs to the caller and stays untouched until it was awaited.
///
/// all-gather      data [world, part_bytes], this rank's part already in its place
/// reduce-scatter  data [world, part] of `wire`; out [part] fp32 gets (or adds) the sum over ranks of this rank's part
/// all-reduce      as reduce-scatter, then gathered: out [world, part] fp32. May be in place (out == data, wire fp32)
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllGather;
  std::string_view label;  // whose data it is: layers.3; outlives the collective
  void* data = nullptr;
  std::size_t part_bytes = 0;
  Dtype wire = Dtype::kFp32;
  float* out = nullptr;
  bool accumulate = false;  // reduce-scatter: out is added to
  bool host = false;        // exchange: data is the host's, whatever the device; done when it was awaited
  CollectiveMarks marks;    // the communicator's own, on a device with queues
};

/// Names a posted collective.
struct Ticket {
  Channel channel = Channel::kGather;
  std::uint64_t number = 0;  // 1 for the first of the channel; 0: nothing to wait for
};

/// In what order a reduction adds what the ranks sent.
enum class ReductionOrder : std::uint8_t {
  kOrdered,  // rank 0, 1, 2 ...: the same bits in every run, and those of one rank that adds the parts in turn
  kRing,     // this rank's own first, then those after it in turn: an order of its own on every rank
};

/// The world that a communicator joins, and how rows label it.
struct WorldInfo {
  int rank = 0;
  int size = 1;
  std::string transport;     // local, mpi
  bool emulated = false;     // a link emulator stretches every collective
  bool time_shared = false;  // ranks compute in turn on fewer processors (or one device) than there are ranks
};

/// Totals over the collectives of one kind since the last reset. Times of this rank.
struct CollectiveTotals {
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // of full buffers, world * part
  double busy_s = 0;       // from the moment that all ranks had joined to the end
  double waited_s = 0;     // for ranks that joined later
};

/// When a collective was on its way, for timelines.
struct CollectiveSpan {
  Channel channel = Channel::kGather;
  CollectiveKind kind = CollectiveKind::kAllGather;
  std::string_view label;
  Clock::time_point posted, joined, finished;
};

/// The end of a step on a device with queues: the last mark of compute, and the first with its time.
struct Settling {
  kernels::Mark end = nullptr;
  kernels::Mark origin = nullptr;
  Clock::time_point began;
};

/// Joins one rank to the others. Not thread-safe: the thread that drives the rank's device posts and waits.
///
/// Errors  of wait, kFailed: a rank is dead, hung or runs another sequence of collectives; the sentence names the rank
///         and the collective. Every rank gets one, within the deadline; nothing can be posted after it
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual const WorldInfo& world() const = 0;
  /// Starts after everything that the caller has enqueued on the channel's queue; returns at once.
  virtual Ticket post(Channel channel, const Collective& collective) = 0;
  /// What the caller does next (on the compute queue) sees the result of the collective and of all before it on its
  /// channel. Stands still for other ranks alone, never for the device.
  virtual base::Result<void> wait(Ticket ticket) = 0;

  /// Stands still until the device has come to the end of a step, no longer than the deadline; then the times of the
  /// step's collectives are known. Nothing to do where work is done when a call returns.
  virtual base::Result<void> settle(const Settling&) { return {}; }
  /// Whether a step with these collectives can be captured and replayed without the host.
  virtual bool replays() const { return false; }

  /// Parts of the largest reduction that the transport receives before it adds; the engine provides the memory.
  virtual std::int64_t scratch_parts() const = 0;
  virtual void set_scratch(void* scratch) = 0;

  using Totals = std::array<CollectiveTotals, kCollectiveKinds>;
  virtual Totals totals() const = 0;
  virtual void reset_totals() = 0;

  /// Ends the run on all ranks: their next wait fails with this error.
  virtual void abort(const base::Error& error) noexcept = 0;
};

}  // namespace attnbench::fsdp
