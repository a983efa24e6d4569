// Lets the real transport do its work, then sleeps until the emulated link would have done it.
#include "fsdp/emulated_link.hpp"

#include <thread>

namespace attnbench::fsdp {
namespace {

class EmulatedLink : public Transport {
 public:
  EmulatedLink(std::unique_ptr<Transport> inner, const LinkModel& link)
      : inner_(std::move(inner)), link_(link), world_(inner_->world()) {
    world_.emulated = true;
  }

  const WorldInfo& world() const override { return world_; }
  std::int64_t scratch_parts() const override { return inner_->scratch_parts(); }
  void fail(const base::Error& error) noexcept override { inner_->fail(error); }

  base::Result<Clock::time_point> run(Channel channel, const Call& call) override {
    const auto joined = inner_->run(channel, call);
    if (!joined) return joined;
    const double time_s = link_time_s(link_, call.collective->kind, call.signature->bytes, world_.size);
    std::this_thread::sleep_until(*joined +
                                  std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time_s)));
    return joined;
  }

 private:
  std::unique_ptr<Transport> inner_;
  LinkModel link_;
  WorldInfo world_;
};

}  // namespace

double link_time_s(const LinkModel& link, CollectiveKind kind, std::size_t full_bytes, int world) {
  const double peers = world - 1;
  double time_s = link.latency_s * peers;
  if (link.bandwidth_bytes_per_s > 0) {
    time_s += static_cast<double>(full_bytes) * peers / world / link.bandwidth_bytes_per_s;
  }
  return kind == CollectiveKind::kAllReduce ? 2 * time_s : time_s;
}

std::unique_ptr<Transport> emulate_link(std::unique_ptr<Transport> transport, const LinkModel& link) {
  return std::make_unique<EmulatedLink>(std::move(transport), link);
}

}  // namespace attnbench::fsdp
