// Every collective is done when it is posted, by the thread that posts it or on the queue that it names.
#include "fsdp/solo.hpp"

#include <optional>
#include <thread>

#include "fsdp/ops.hpp"
#include "fsdp/reduce.hpp"

namespace attnbench::fsdp {
namespace {

class Solo : public Communicator {
 public:
  Solo() { world_.transport = "none"; }

  const WorldInfo& world() const override { return world_; }

  Ticket post(Channel channel, const Collective& collective) override {
    if (!gathers(collective.kind)) {
      const void* const part = collective.data;
      const auto count = static_cast<std::int64_t>(collective.part_bytes / kernels::size_of(collective.wire));
      sum_in_order(collective.out, collective.accumulate, {&part, 1}, collective.wire, count);
    }
    return {channel, 1};
  }

  base::Result<void> wait(Ticket) override {
    if (error_) return tl::unexpected(*error_);
    return {};
  }

  std::int64_t scratch_parts() const override { return 0; }
  void set_scratch(void*) override {}
  Totals totals() const override { return {}; }
  void reset_totals() override {}
  void abort(const base::Error& error) noexcept override { error_ = error; }

 private:
  WorldInfo world_;
  std::optional<base::Error> error_;
};

/// The same on a device with queues.
class QueuedSolo : public Communicator {
 public:
  QueuedSolo(kernels::Queues& queues, std::unique_ptr<Ops> ops, std::vector<kernels::Mark> marks)
      : queues_(queues), ops_(std::move(ops)), marks_(std::move(marks)) {
    world_.transport = "none";
  }

  const WorldInfo& world() const override { return world_; }

  Ticket post(Channel channel, const Collective& collective) override {
    const std::uint64_t number = ++posted_[static_cast<std::size_t>(channel)];
    base::Result<void> ok;
    if (!gathers(collective.kind)) {
      const void* const part = collective.data;
      const auto count = static_cast<std::int64_t>(collective.part_bytes / kernels::size_of(collective.wire));
      ok = ops_->run(kernels::OrderedSum{collective.out, collective.accumulate, {&part, 1}, collective.wire, count},
                     queue_of(channel));
    }
    if (ok) ok = queues_.record(mark(channel, number), queue_of(channel));
    if (!ok) error_ = ok.error();
    return {channel, number};
  }

  base::Result<void> wait(Ticket ticket) override {
    if (error_) return tl::unexpected(*error_);
    if (ticket.number == 0) return {};
    return queues_.wait(kernels::Queue::kCompute, mark(ticket.channel, ticket.number));
  }

  base::Result<void> settle(const Settling& settling) override {
    while (true) {
      const auto there = queues_.reached(settling.end);
      if (!there) return tl::unexpected(there.error());
      if (*there) return {};
      std::this_thread::yield();
    }
  }

  bool replays() const override { return true; }
  std::int64_t scratch_parts() const override { return 0; }
  void set_scratch(void*) override {}
  Totals totals() const override { return {}; }
  void reset_totals() override {}
  void abort(const base::Error& error) noexcept override { error_ = error; }

  static constexpr std::uint64_t kRing = 256;  // posts of a channel that nobody has awaited yet

 private:
  kernels::Mark mark(Channel channel, std::uint64_t number) const {
    return marks_[static_cast<std::size_t>(channel) * kRing + number % kRing];
  }

  kernels::Queues& queues_;
  std::unique_ptr<Ops> ops_;
  std::vector<kernels::Mark> marks_;
  std::array<std::uint64_t, kChannels> posted_{};
  WorldInfo world_;
  std::optional<base::Error> error_;
};

}  // namespace

base::Result<std::unique_ptr<Communicator>> make_solo(Device& device) {
  kernels::Queues* const queues = device.queues();
  if (queues == nullptr) return make_solo();
  auto ops = make_ops(device, 0);
  if (!ops) return tl::unexpected(ops.error());
  auto marks = queues->make_marks(kChannels * QueuedSolo::kRing, kernels::MarkKind::kOrder);
  if (!marks) return tl::unexpected(marks.error());
  return std::make_unique<QueuedSolo>(*queues, std::move(*ops), std::move(*marks));
}

std::unique_ptr<Communicator> make_solo() { return std::make_unique<Solo>(); }

}  // namespace attnbench::fsdp
