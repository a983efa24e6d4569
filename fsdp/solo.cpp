// Every collective is done when it is posted, by the thread that posts it.
#include "fsdp/solo.hpp"

#include <optional>

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

}  // namespace

std::unique_ptr<Communicator> make_solo() { return std::make_unique<Solo>(); }

}  // namespace attnbench::fsdp
