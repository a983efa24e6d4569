// Each collective is a meeting: ranks arrive with pointers to their memory, copy or add what they need from the others,
// and leave together, so that nobody's memory is read after its owner was told that it is free again.
#include "fsdp/local.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "fsdp/reduce.hpp"

namespace attnbench::fsdp {

using base::Error;
using base::Result;

namespace {

/// Where the ranks meet on one channel.
struct Meeting {
  explicit Meeting(int size)
      : calls(static_cast<std::size_t>(size)),
        seen(static_cast<std::size_t>(size)),
        here(static_cast<std::size_t>(size)) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Call> calls;      // of the ranks that are here
  std::vector<Signature> seen;  // the last collective that each rank joined
  std::vector<char> here;       // arrived at the barrier that is filling up
  int arrived = 0;
  std::uint64_t barriers = 0;  // passed so far
  int touching = 0;            // ranks that may be reading the memory of others
  Clock::time_point filled;    // when the last barrier was passed
};

}  // namespace

class LocalWorld {
 public:
  LocalWorld(int size, const TransportOptions& options) : size_(size), options_(options) {
    for (auto& meeting : meetings_) meeting = std::make_unique<Meeting>(size);
  }

  int size() const { return size_; }
  const TransportOptions& options() const { return options_; }
  Meeting& meeting(Channel channel) { return *meetings_[static_cast<std::size_t>(channel)]; }
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  Error error() {
    const std::scoped_lock lock(error_mutex_);
    return *error_;
  }

  void fail(const Error& error) {
    {
      const std::scoped_lock lock(error_mutex_);
      if (error_) return;
      error_ = error;
    }
    failed_.store(true, std::memory_order_release);
    for (auto& meeting : meetings_) {
      const std::scoped_lock lock(meeting->mutex);
      meeting->changed.notify_all();
    }
  }

 private:
  const int size_;
  const TransportOptions options_;
  std::array<std::unique_ptr<Meeting>, kChannels> meetings_;
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::optional<Error> error_;
};

namespace {

class LocalTransport : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalWorld> world, int rank, const LocalDevice& device)
      : shared_(std::move(world)), device_(device) {
    world_.rank = rank;
    world_.size = shared_->size();
    world_.transport = "local";
    const bool crowded = static_cast<unsigned>(world_.size) > std::thread::hardware_concurrency();
    world_.time_shared = world_.size > 1 && (crowded || device_.queues != nullptr);
    for (auto& parts : parts_) parts.resize(static_cast<std::size_t>(world_.size));
    for (auto& marks : marks_) marks.resize(static_cast<std::size_t>(world_.size));
  }

  const WorldInfo& world() const override { return world_; }
  std::int64_t scratch_parts() const override { return 0; }
  void fail(const Error& error) noexcept override { shared_->fail(error); }

  Result<Clock::time_point> run(Channel channel, const Call& call) override {
    Meeting& meeting = shared_->meeting(channel);
    const auto joined = arrive(meeting, call);
    if (!joined) return joined;
    auto done = exchange(meeting, channel, call);
    if (!done) shared_->fail(done.error());
    leave(meeting, done.has_value());
    if (!done) return tl::unexpected(shared_->error());
    return joined;
  }

 private:
  const Collective& theirs(const Meeting& meeting, int rank) const {
    return *meeting.calls[static_cast<std::size_t>(rank)].collective;
  }

  /// The first barrier: publishes the call.
  Result<Clock::time_point> arrive(Meeting& meeting, const Call& call) {
    std::unique_lock lock(meeting.mutex);
    if (shared_->failed()) return tl::unexpected(shared_->error());
    meeting.calls[static_cast<std::size_t>(world_.rank)] = call;
    meeting.seen[static_cast<std::size_t>(world_.rank)] = *call.signature;
    if (auto ok = barrier(lock, meeting, *call.signature, world_.size); !ok) return tl::unexpected(ok.error());
    return meeting.filled;
  }

  /// Waits for all ranks; the last one to come counts all as touching each other's memory, when it is the first barrier
  /// of a collective.
  Result<void> barrier(std::unique_lock<std::mutex>& lock, Meeting& meeting, const Signature& signature, int touching) {
    const auto me = static_cast<std::size_t>(world_.rank);
    const std::uint64_t before = meeting.barriers;
    meeting.here[me] = 1;
    if (++meeting.arrived == world_.size) {
      meeting.arrived = 0;
      std::fill(meeting.here.begin(), meeting.here.end(), char{0});
      meeting.touching += touching;
      meeting.filled = Clock::now();
      ++meeting.barriers;
      meeting.changed.notify_all();
      return {};
    }
    const auto patience = std::chrono::duration<double>(shared_->options().deadline_s);
    const bool came =
        meeting.changed.wait_for(lock, patience, [&] { return meeting.barriers != before || shared_->failed(); });
    if (meeting.barriers != before) return {};
    // Not here any more: a rank that comes now must not find the barrier full and read what this one is about to drop.
    --meeting.arrived;
    meeting.here[me] = 0;
    if (came) return tl::unexpected(shared_->error());
    Error error;
    for (int rank = 0; rank < world_.size; ++rank) {
      const auto other = static_cast<std::size_t>(rank);
      if (meeting.here[other] != 0 || rank == world_.rank) continue;
      error = missing(world_.rank, signature, rank, &meeting.seen[other], shared_->options().deadline_s);
      break;
    }
    lock.unlock();
    shared_->fail(error);
    lock.lock();
    return tl::unexpected(shared_->error());
  }

  Result<void> exchange(Meeting& meeting, Channel channel, const Call& call) {
    for (int rank = 0; rank < world_.size; ++rank) {
      const Signature& other = *meeting.calls[static_cast<std::size_t>(rank)].signature;
      if (auto ok = check_same(world_.rank, *call.signature, rank, other); !ok) return ok;
    }
    const Collective& mine = *call.collective;
    if (device_.queues != nullptr && !mine.host) return enqueue(meeting, channel, call);
    if (gathers(mine.kind)) {
      copy_parts(meeting, mine.part_bytes, [](const Collective& c) { return static_cast<std::byte*>(c.data); });
    } else {
      add_parts(meeting, channel, mine);
    }
    std::unique_lock lock(meeting.mutex);
    if (mine.kind == CollectiveKind::kAllReduce) {
      if (auto ok = barrier(lock, meeting, *call.signature, 0); !ok) return ok;
      lock.unlock();
      const std::size_t bytes = mine.part_bytes / kernels::size_of(mine.wire) * sizeof(float);
      copy_parts(meeting, bytes, [](const Collective& c) { return reinterpret_cast<std::byte*>(c.out); });
      lock.lock();
    }
    return barrier(lock, meeting, *call.signature, 0);
  }

  /// Every other rank's part of its own buffer, into the same place of this rank's.
  template <typename Buffer>
  void copy_parts(const Meeting& meeting, std::size_t part_bytes, const Buffer& buffer) {
    if (part_bytes == 0) return;  // a barrier: there may be no buffer at all
    std::byte* const target = buffer(theirs(meeting, world_.rank));
    for (int i = 1; i < world_.size; ++i) {
      const int rank = (world_.rank + i) % world_.size;  // not all from the same rank at once
      const std::size_t offset = static_cast<std::size_t>(rank) * part_bytes;
      std::memcpy(target + offset, buffer(theirs(meeting, rank)) + offset, part_bytes);
    }
  }

  /// The same on this rank's queue of the channel. Host sides meet once more after all have enqueued their reading, so
  /// that each can have its queue wait for the others': its memory is free when its done mark is reached.
  Result<void> enqueue(Meeting& meeting, Channel channel, const Call& call) {
    const Collective& mine = *call.collective;
    const kernels::Queue queue = queue_of(channel);
    std::vector<CollectiveMarks>& marks = marks_[static_cast<std::size_t>(channel)];
    Result<void> ok;
    for (int rank = 0; rank < world_.size; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      marks[index] = theirs(meeting, rank).marks;
      if (ok) ok = device_.queues->wait(queue, marks[index].ready);
    }
    if (ok) ok = device_.queues->record(mine.marks.begun, queue);
    if (ok && gathers(mine.kind)) {
      ok = enqueue_copies(meeting, queue, mine.part_bytes, [](const Collective& c) { return c.data; });
    } else if (ok) {
      ok = device_.ops->run(sum_of_parts(meeting, channel, mine), queue);
    }
    if (ok) ok = meet(meeting, call, queue, &CollectiveMarks::moved);
    if (ok && mine.kind == CollectiveKind::kAllReduce) {
      const std::size_t bytes = mine.part_bytes / kernels::size_of(mine.wire) * sizeof(float);
      ok = enqueue_copies(meeting, queue, bytes, [](const Collective& c) -> void* { return c.out; });
      // Everybody has waited for this mark: it can serve again.
      if (ok) ok = meet(meeting, call, queue, &CollectiveMarks::ready);
    }
    return ok ? device_.queues->record(mine.marks.done, queue) : ok;
  }

  /// All ranks record a mark, meet, and wait for each other's.
  Result<void> meet(Meeting& meeting, const Call& call, kernels::Queue queue, kernels::Mark CollectiveMarks::*mark) {
    const std::vector<CollectiveMarks>& marks = marks_[static_cast<std::size_t>(call.signature->channel)];
    auto ok = device_.queues->record(call.collective->marks.*mark, queue);
    if (!ok) return ok;
    {
      std::unique_lock lock(meeting.mutex);
      ok = barrier(lock, meeting, *call.signature, 0);
    }
    for (const CollectiveMarks& each : marks) {
      if (ok) ok = device_.queues->wait(queue, each.*mark);
    }
    return ok;
  }

  template <typename Buffer>
  Result<void> enqueue_copies(const Meeting& meeting, kernels::Queue queue, std::size_t part_bytes,
                              const Buffer& buffer) {
    auto* const target = static_cast<std::byte*>(buffer(theirs(meeting, world_.rank)));
    Result<void> ok;
    for (int i = 1; i < world_.size && ok; ++i) {
      const int rank = (world_.rank + i) % world_.size;
      const std::size_t offset = static_cast<std::size_t>(rank) * part_bytes;
      const auto* const source = static_cast<const std::byte*>(buffer(theirs(meeting, rank)));
      ok = device_.queues->copy(target + offset, source + offset, part_bytes, queue);
    }
    return ok;
  }

  /// This rank's part of every rank's buffer, added.
  void add_parts(const Meeting& meeting, Channel channel, const Collective& mine) {
    const kernels::OrderedSum sum = sum_of_parts(meeting, channel, mine);
    sum_in_order(sum.out, sum.accumulate, sum.parts, sum.wire, sum.count);
  }

  kernels::OrderedSum sum_of_parts(const Meeting& meeting, Channel channel, const Collective& mine) {
    std::vector<const void*>& parts = parts_[static_cast<std::size_t>(channel)];
    const std::size_t offset = static_cast<std::size_t>(world_.rank) * mine.part_bytes;
    for (int i = 0; i < world_.size; ++i) {
      const bool ordered = shared_->options().order == ReductionOrder::kOrdered;
      const int rank = ordered ? i : (world_.rank + i) % world_.size;
      parts[static_cast<std::size_t>(i)] = static_cast<const std::byte*>(theirs(meeting, rank).data) + offset;
    }
    const auto count = static_cast<std::int64_t>(mine.part_bytes / kernels::size_of(mine.wire));
    const bool in_place = mine.kind == CollectiveKind::kAllReduce;
    float* const out = mine.out + (in_place ? world_.rank * count : 0);
    return {out, mine.accumulate && !in_place, parts, mine.wire, count};
  }

  /// After a failure, waits until nobody reads this rank's memory any more: that takes no longer than a copy.
  void leave(Meeting& meeting, bool done) {
    std::unique_lock lock(meeting.mutex);
    if (--meeting.touching == 0) meeting.changed.notify_all();
    if (!done) meeting.changed.wait(lock, [&] { return meeting.touching == 0; });
  }

  std::shared_ptr<LocalWorld> shared_;
  LocalDevice device_;
  WorldInfo world_;
  std::array<std::vector<const void*>, kChannels> parts_;
  std::array<std::vector<CollectiveMarks>, kChannels> marks_;
};

}  // namespace

std::shared_ptr<LocalWorld> make_local_world(int size, const TransportOptions& options) {
  return std::make_shared<LocalWorld>(size, options);
}

std::unique_ptr<Transport> join_local(std::shared_ptr<LocalWorld> world, int rank, const LocalDevice& device) {
  return std::make_unique<LocalTransport>(std::move(world), rank, device);
}

}  // namespace attnbench::fsdp
