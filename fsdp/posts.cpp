// Rings of marks, and times from them.
#include "fsdp/posts.hpp"

#include <thread>

#include "fsdp/transport.hpp"

namespace attnbench::fsdp {

using base::Result;

namespace {

constexpr std::size_t kRing = 512;  // posts of a channel in one step

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Result<Posts> Posts::make(kernels::Queues& queues) {
  Posts posts;
  posts.queues_ = &queues;
  for (Ring& ring : posts.rings_) {
    ring.slots.resize(kRing);
    const auto ready = queues.make_marks(2 * kRing, kernels::MarkKind::kOrder);
    const auto timed = queues.make_marks(2 * kRing, kernels::MarkKind::kTime);
    if (!ready) return tl::unexpected(ready.error());
    if (!timed) return tl::unexpected(timed.error());
    for (std::size_t i = 0; i < kRing; ++i) {
      ring.slots[i].marks = {(*ready)[2 * i], (*timed)[2 * i], (*ready)[2 * i + 1], (*timed)[2 * i + 1]};
    }
  }
  return posts;
}

const Collective& Posts::slot(Ticket ticket) const {
  return rings_[static_cast<std::size_t>(ticket.channel)].slots[(ticket.number - 1) % kRing];
}

Result<Ticket> Posts::begin(Channel channel, Collective& collective) {
  Ring& ring = rings_[static_cast<std::size_t>(channel)];
  Collective& slot = ring.slots[ring.posted % kRing];
  // The times of a step with more posts than the ring has are those of its last ones.
  if (ring.posted - ring.counted == kRing) ++ring.counted;
  collective.marks = slot.marks;
  slot = collective;
  ++ring.posted;
  auto ok = queues_->record(slot.marks.ready, queue_of(channel));
  if (!ok) return tl::unexpected(ok.error());
  return Ticket{channel, ring.posted};
}

Result<bool> Posts::reach(const Settling& settling, double deadline_s) {
  const Clock::time_point until = Clock::now() + duration_of(deadline_s);
  while (true) {
    const auto there = queues_->reached(settling.end);
    if (!there) return tl::unexpected(there.error());
    if (*there) return true;
    if (Clock::now() > until) return false;
    std::this_thread::yield();
  }
}

Result<void> Posts::count(const Settling& settling, int world, Communicator::Totals& totals, Observer* observer) {
  for (const Channel channel : {Channel::kGather, Channel::kReduce}) {
    Ring& ring = rings_[static_cast<std::size_t>(channel)];
    for (; ring.counted < ring.posted; ++ring.counted) {
      const Collective& c = ring.slots[ring.counted % kRing];
      if (c.host) continue;
      const auto begun = queues_->seconds_between(settling.origin, c.marks.begun);
      const auto busy = queues_->seconds_between(c.marks.begun, c.marks.done);
      if (!begun) return tl::unexpected(begun.error());
      if (!busy) return tl::unexpected(busy.error());
      CollectiveTotals& total = totals[static_cast<std::size_t>(c.kind)];
      ++total.count;
      total.bytes += static_cast<std::int64_t>(c.part_bytes) * world;
      total.busy_s += *busy;
      const Clock::time_point joined = settling.began + duration_of(*begun);
      if (observer != nullptr) observer->ended({channel, c.kind, c.label, joined, joined, joined + duration_of(*busy)});
    }
  }
  return {};
}

Result<const Collective*> Posts::unfinished() const {
  for (const Ring& ring : rings_) {
    for (std::uint64_t i = ring.counted; i < ring.posted; ++i) {
      const Collective& c = ring.slots[i % kRing];
      if (c.host) continue;
      const auto done = queues_->reached(c.marks.done);
      if (!done) return tl::unexpected(done.error());
      if (!*done) return &c;
    }
  }
  return nullptr;
}

}  // namespace attnbench::fsdp
