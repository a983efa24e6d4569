// A communicator from blocking calls: each channel has a queue and a thread that works it off.
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "fsdp/transport.hpp"

namespace attnbench::fsdp {
namespace {

using base::Error;
using base::Result;

constexpr std::size_t kQueue = 256;  // posts that may wait; one more stands still until there is room

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

/// A queue, its thread and its totals.
class Lane {
 public:
  Lane(Channel channel, Transport& transport, const TransportOptions& options)
      : channel_(channel), transport_(transport), options_(options), thread_([this] { work(); }) {}

  ~Lane() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    posted_.notify_all();
    thread_.join();
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  std::uint64_t post(const Collective& collective) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return posted_count_ - done_count_ < kQueue || error_; });
    if (error_) return ++posted_count_;
    queue_[posted_count_ % kQueue] = {collective, Clock::now()};
    const std::uint64_t number = ++posted_count_;
    lock.unlock();
    posted_.notify_one();
    return number;
  }

  /// The transport keeps the deadline; this one catches a transport that is stuck itself.
  Result<void> wait(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    const auto patience = std::chrono::duration<double>(1.5 * options_.deadline_s + 2);
    while (done_count_ < number && !error_) {
      const std::uint64_t before = done_count_;
      const bool moved = done_.wait_for(lock, patience, [&] { return done_count_ != before || error_; });
      if (!moved) {
        error_ = Error{base::ErrorKind::kFailed,
                       fmt::format("rank {}: the {} has not ended within {:.1f} s, and its thread does not answer",
                                   transport_.world().rank, describe(current_), patience.count())};
      }
    }
    if (done_count_ >= number) return {};
    return tl::unexpected(*error_);
  }

  void fail(const Error& error) noexcept {
    {
      const std::scoped_lock lock(mutex_);
      if (!error_) error_ = error;
    }
    done_.notify_all();
    posted_.notify_all();
  }

  void set_scratch(void* scratch) {
    const std::scoped_lock lock(mutex_);
    scratch_ = scratch;
  }

  void add_totals(Communicator::Totals& totals) const {
    const std::scoped_lock lock(mutex_);
    for (std::size_t kind = 0; kind < totals.size(); ++kind) {
      totals[kind].count += totals_[kind].count;
      totals[kind].bytes += totals_[kind].bytes;
      totals[kind].busy_s += totals_[kind].busy_s;
      totals[kind].waited_s += totals_[kind].waited_s;
    }
  }

  void reset_totals() {
    const std::scoped_lock lock(mutex_);
    totals_ = {};
  }

 private:
  struct Request {
    Collective collective;
    Clock::time_point posted;
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      posted_.wait(lock, [this] { return posted_count_ > done_count_ || stopping_ || error_; });
      if (error_ || posted_count_ == done_count_) {
        if (stopping_) return;
        if (error_) posted_.wait(lock, [this] { return stopping_; });
        continue;
      }
      const Request request = queue_[done_count_ % kQueue];
      current_ = next_signature(current_, channel_, request.collective, transport_.world().size);
      void* const scratch = scratch_;
      lock.unlock();
      const Clock::time_point began = Clock::now();
      if (options_.observer != nullptr) options_.observer->began(current_);
      const auto joined = transport_.run(channel_, {&request.collective, &current_, scratch});
      const Clock::time_point ended = Clock::now();
      if (options_.observer != nullptr) report(request, joined, ended);
      lock.lock();
      if (joined) {
        count(request.collective, began, *joined, ended);
        ++done_count_;
      } else if (!error_) {
        error_ = joined.error();
      }
      done_.notify_all();
    }
  }

  void report(const Request& request, const Result<Clock::time_point>& joined, Clock::time_point ended) {
    if (!joined) {
      options_.observer->failed(joined.error());
    } else {
      const Collective& collective = request.collective;
      options_.observer->ended({channel_, collective.kind, collective.label, request.posted, *joined, ended});
    }
  }

  void count(const Collective& collective, Clock::time_point began, Clock::time_point joined, Clock::time_point ended) {
    CollectiveTotals& totals = totals_[static_cast<std::size_t>(collective.kind)];
    ++totals.count;
    totals.bytes += static_cast<std::int64_t>(collective.part_bytes) * transport_.world().size;
    totals.busy_s += seconds(ended - joined);
    totals.waited_s += std::max(0.0, seconds(joined - began));
  }

  const Channel channel_;
  Transport& transport_;
  const TransportOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable done_;
  std::array<Request, kQueue> queue_{};
  std::uint64_t posted_count_ = 0;
  std::uint64_t done_count_ = 0;
  std::optional<Error> error_;
  bool stopping_ = false;
  void* scratch_ = nullptr;
  Signature current_;
  Communicator::Totals totals_{};
  std::thread thread_;  // last: it uses all of the above
};

class ThreadedCommunicator : public Communicator {
 public:
  ThreadedCommunicator(std::unique_ptr<Transport> transport, const TransportOptions& options)
      : transport_(std::move(transport)),
        gather_(Channel::kGather, *transport_, options),
        reduce_(Channel::kReduce, *transport_, options) {}

  const WorldInfo& world() const override { return transport_->world(); }

  Ticket post(Channel channel, const Collective& collective) override {
    return {channel, lane(channel).post(collective)};
  }

  Result<void> wait(Ticket ticket) override {
    if (ticket.number == 0) return {};
    auto ok = lane(ticket.channel).wait(ticket.number);
    // What ended one channel ends the other, here and on the other ranks.
    if (!ok) abort(ok.error());
    return ok;
  }

  std::int64_t scratch_parts() const override { return transport_->scratch_parts(); }
  /// Reductions use it, and there is one channel for them.
  void set_scratch(void* scratch) override { reduce_.set_scratch(scratch); }

  Totals totals() const override {
    Totals totals{};
    gather_.add_totals(totals);
    reduce_.add_totals(totals);
    return totals;
  }
  void reset_totals() override {
    gather_.reset_totals();
    reduce_.reset_totals();
  }

  void abort(const Error& error) noexcept override {
    transport_->fail(error);
    gather_.fail(error);
    reduce_.fail(error);
  }

 private:
  Lane& lane(Channel channel) { return channel == Channel::kGather ? gather_ : reduce_; }

  std::unique_ptr<Transport> transport_;
  Lane gather_, reduce_;
};

}  // namespace

std::unique_ptr<Communicator> make_threaded(std::unique_ptr<Transport> transport, const TransportOptions& options) {
  return std::make_unique<ThreadedCommunicator>(std::move(transport), options);
}

}  // namespace attnbench::fsdp
