// Ranks of one process on a device with queues: threads bring the host sides together, queues do the work.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "fsdp/local.hpp"
#include "fsdp/posts.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;

class QueuedLocal : public Communicator {
 public:
  QueuedLocal(std::unique_ptr<Ops> ops, Posts posts, const TransportOptions& options)
      : ops_(std::move(ops)), posts_(std::move(posts)), options_(options) {}

  void join(std::shared_ptr<LocalWorld> world, int rank) {
    TransportOptions inner = options_;
    inner.observer = nullptr;  // it is told the device's times, when they are known
    inner_ = make_threaded(join_local(std::move(world), rank, LocalDevice{&posts_.queues(), ops_.get()}), inner);
  }

  const WorldInfo& world() const override { return inner_->world(); }

  /// Both count the same way, so that one number names the post in both.
  Ticket post(Channel channel, const Collective& collective) override {
    Collective marked = collective;
    const auto ticket = posts_.begin(channel, marked);
    if (!ticket && !error_) error_ = ticket.error();
    return inner_->post(channel, marked);
  }

  Result<void> wait(Ticket ticket) override {
    if (error_) abort(*error_);
    if (ticket.number == 0) return {};
    if (auto ok = inner_->wait(ticket); !ok) return ok;
    return posts_.collective(ticket).host ? Result<void>() : posts_.wait(ticket);
  }

  Result<void> settle(const Settling& settling) override {
    const auto there = posts_.reach(settling, options_.deadline_s);
    if (!there) return tl::unexpected(there.error());
    if (*there) return posts_.count(settling, world().size, totals_, options_.observer);
    const auto stuck = posts_.unfinished();
    const std::string where = stuck && *stuck != nullptr
                                  ? fmt::format("the {} of {}", to_string((*stuck)->kind), (*stuck)->label)
                                  : std::string("computing");
    const base::Error error{base::ErrorKind::kFailed,
                            fmt::format("rank {}: its device has not come to the end of a step within {:.1f} s: {}",
                                        world().rank, options_.deadline_s, where)};
    abort(error);
    return tl::unexpected(error);
  }

  std::int64_t scratch_parts() const override { return 0; }
  void set_scratch(void*) override {}
  Totals totals() const override { return totals_; }
  void reset_totals() override { totals_ = {}; }
  void abort(const base::Error& error) noexcept override { inner_->abort(error); }

 private:
  std::unique_ptr<Ops> ops_;
  Posts posts_;
  TransportOptions options_;
  Totals totals_{};
  std::optional<base::Error> error_;
  std::unique_ptr<Communicator> inner_;  // last: its threads use the above
};

}  // namespace

Result<std::unique_ptr<Communicator>> join_local(std::shared_ptr<LocalWorld> world, int rank, Device& device,
                                                 const TransportOptions& options) {
  kernels::Queues* const queues = device.queues();
  if (queues == nullptr) return make_threaded(join_local(std::move(world), rank), options);
  auto ops = make_ops(device, 0);
  if (!ops) return tl::unexpected(ops.error());
  auto posts = Posts::make(*queues);
  if (!posts) return tl::unexpected(posts.error());
  auto made = std::make_unique<QueuedLocal>(std::move(*ops), std::move(*posts), options);
  made->join(std::move(world), rank);
  return made;
}

}  // namespace attnbench::fsdp
