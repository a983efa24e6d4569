// Collectives of GPUs on their queues, through NCCL: one communicator per channel, so that gathers and reductions do
// not wait for each other.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

#include "fsdp/nccl.hpp"
#include "fsdp/nccl_library.hpp"
#include "fsdp/ops.hpp"
#include "fsdp/posts.hpp"

namespace attnbench::fsdp {
namespace {

using base::Error;
using base::ErrorKind;
using base::fail;
using base::Result;

constexpr std::size_t kStaging = std::size_t{1} << 20;  // bytes of numbers that travel at once
constexpr auto kPause = std::chrono::microseconds(50);

ncclDataType_t type_of(Dtype dtype) {
  return dtype == Dtype::kFp32 ? ncclFloat32 : (dtype == Dtype::kBf16 ? ncclBfloat16 : ncclFloat16);
}

class Nccl : public Communicator {
 public:
  Nccl(const NcclLibrary& library, Device& device, std::unique_ptr<Ops> ops, Posts posts,
       const TransportOptions& options)
      : library_(library),
        device_(device),
        queues_(posts.queues()),
        ops_(std::move(ops)),
        posts_(std::move(posts)),
        options_(options) {
    world_.transport = "nccl";
  }

  ~Nccl() override { end(); }

  Result<void> join(const NcclWorld& world, int rank) {
    world_.rank = rank;
    world_.size = world.size;
    parts_.resize(static_cast<std::size_t>(world.size));
    auto staging = device_.allocate(kStaging);
    if (!staging) return tl::unexpected(staging.error());
    staging_ = std::move(*staging);
    for (std::size_t channel = 0; channel < kChannels; ++channel) {
      ncclUniqueId id;
      std::memcpy(&id, world.ids[channel].data(), sizeof id);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      const ncclResult_t result = library_.comm_init_rank_config(&comms_[channel], world.size, id, rank, &config);
      if (auto ok = finish(static_cast<Channel>(channel), result, "joining the others"); !ok) return ok;
    }
    return {};
  }

  const WorldInfo& world() const override { return world_; }

  Ticket post(Channel channel, const Collective& collective) override {
    Collective marked = collective;
    const auto ticket = posts_.begin(channel, marked);
    Result<void> ok = ticket ? Result<void>() : tl::unexpected(ticket.error());
    if (error_) return ticket.value_or(Ticket{channel, 1});
    if (ok && marked.host) {
      ok = exchange(channel, marked);
    } else if (ok) {
      ok = queues_.record(marked.marks.begun, queue_of(channel));
      if (ok) ok = enqueue(channel, marked);
      if (ok) ok = queues_.record(marked.marks.done, queue_of(channel));
    }
    if (!ok) abort(ok.error());
    return ticket.value_or(Ticket{channel, 1});
  }

  Result<void> wait(Ticket ticket) override {
    if (error_) return tl::unexpected(*error_);
    if (ticket.number == 0 || posts_.collective(ticket).host) return {};
    return posts_.wait(ticket);
  }

  Result<void> settle(const Settling& settling) override {
    if (error_) return tl::unexpected(*error_);
    const auto there = posts_.reach(settling, options_.deadline_s);
    if (!there) return tl::unexpected(there.error());
    if (*there) return posts_.count(settling, world_.size, totals_, options_.observer);
    const auto stuck = posts_.unfinished();
    const bool known = stuck && *stuck != nullptr;
    return give_up(known ? fmt::format("the {} of {}", to_string((*stuck)->kind), (*stuck)->label) : "a step");
  }

  /// One part for each other rank; NCCL's own sums leave one.
  std::int64_t scratch_parts() const override { return std::max(1, world_.size - 1); }
  void set_scratch(void* scratch) override { scratch_ = scratch; }
  Totals totals() const override { return totals_; }
  void reset_totals() override { totals_ = {}; }

  void abort(const Error& error) noexcept override {
    if (error_) return;
    error_ = error;
    end();
  }

 private:
  cudaStream_t stream(Channel channel) const { return static_cast<cudaStream_t>(queues_.stream(queue_of(channel))); }
  ncclComm_t& comm(Channel channel) { return comms_[static_cast<std::size_t>(channel)]; }

  /// Work on the device ends too: other ranks find out by their own deadline.
  void end() noexcept {
    for (ncclComm_t& each : comms_) {
      if (each != nullptr) (void)library_.comm_abort(each);
      each = nullptr;
    }
  }

  Result<void> give_up(const std::string& what) {
    abort({ErrorKind::kFailed, fmt::format("rank {}: {} has not ended within {:.1f} s; another rank is dead, hung, or "
                                           "does something else (NCCL does not say which)",
                                           world_.rank, what, options_.deadline_s)});
    return tl::unexpected(*error_);
  }

  /// Waits until the library has taken a call, which is not until the device has done it.
  Result<void> finish(Channel channel, ncclResult_t result, const char* what) {
    const auto until = Clock::now() + std::chrono::duration<double>(options_.deadline_s);
    while (result == ncclInProgress) {
      if (Clock::now() > until) return give_up(what);
      std::this_thread::sleep_for(kPause);
      if (library_.comm_get_async_error(comm(channel), &result) != ncclSuccess) result = ncclInternalError;
    }
    if (result == ncclSuccess) return {};
    const char* const advice = result == ncclInvalidUsage ? " (two ranks on one GPU take --transport local)" : "";
    return fail(ErrorKind::kFailed,
                fmt::format("rank {}: NCCL, {}: {}{}", world_.rank, what, library_.get_error_string(result), advice));
  }

  Result<void> enqueue(Channel channel, const Collective& c) {
    if (gathers(c.kind)) return gather(channel, c.data, c.part_bytes);
    const std::size_t element = kernels::size_of(c.wire);
    const auto count = static_cast<std::int64_t>(c.part_bytes / element);
    const bool everywhere = c.kind == CollectiveKind::kAllReduce;
    kernels::OrderedSum sum{
        c.out + (everywhere ? world_.rank * count : 0), c.accumulate && !everywhere, {}, c.wire, count};
    Result<void> ok;
    if (options_.order == ReductionOrder::kOrdered || world_.size == 1) {
      ok = exchange_parts(channel, c);
      sum.parts = parts_;
    } else {
      parts_[0] = scratch_;
      sum.parts = std::span<const void* const>(parts_).first(1);
      ok = finish(channel,
                  library_.reduce_scatter(c.data, scratch_, static_cast<std::size_t>(count), type_of(c.wire), ncclSum,
                                          comm(channel), stream(channel)),
                  "reduce-scatter");
    }
    if (ok) ok = ops_->run(sum, queue_of(channel));
    if (ok && everywhere) ok = gather(channel, c.out, static_cast<std::size_t>(count) * sizeof(float));
    return ok;
  }

  Result<void> gather(Channel channel, void* data, std::size_t part_bytes) {
    if (part_bytes == 0) return {};
    const auto* const mine = static_cast<const char*>(data) + static_cast<std::size_t>(world_.rank) * part_bytes;
    return finish(channel, library_.all_gather(mine, data, part_bytes, ncclInt8, comm(channel), stream(channel)),
                  "all-gather");
  }

  /// This rank's part of every other rank into scratch; parts_ then has all of them in rank order.
  Result<void> exchange_parts(Channel channel, const Collective& c) {
    auto* const data = static_cast<char*>(c.data);
    auto* received = static_cast<char*>(scratch_);
    ncclResult_t result = library_.group_start();
    for (int rank = 0; rank < world_.size; ++rank) {
      char* const theirs = data + static_cast<std::size_t>(rank) * c.part_bytes;
      parts_[static_cast<std::size_t>(rank)] = rank == world_.rank ? theirs : received;
      if (rank == world_.rank || result != ncclSuccess) continue;
      result = library_.send(theirs, c.part_bytes, ncclInt8, rank, comm(channel), stream(channel));
      if (result == ncclSuccess || result == ncclInProgress) {
        result = library_.receive(received, c.part_bytes, ncclInt8, rank, comm(channel), stream(channel));
      }
      if (result == ncclInProgress) result = ncclSuccess;  // the group's end says how it went
      received += c.part_bytes;
    }
    const ncclResult_t ended = library_.group_end();
    return finish(channel, result == ncclSuccess ? ended : result, "exchange of parts");
  }

  /// Numbers of the host, by way of the device; done when this returns.
  Result<void> exchange(Channel channel, const Collective& c) {
    const auto ranks = static_cast<std::size_t>(world_.size), mine = static_cast<std::size_t>(world_.rank);
    const std::size_t most = kStaging / ranks;
    auto* const host = static_cast<char*>(c.data);
    auto* const staged = static_cast<char*>(staging_.data());
    std::size_t at = 0;
    do {  // once at the least: an exchange of nothing is a barrier
      const std::size_t part = std::max<std::size_t>(1, std::min(most, c.part_bytes - at));
      const std::size_t copied = std::min(part, c.part_bytes - at);
      auto ok = device_.upload(staged + mine * part, host + mine * c.part_bytes + at, copied);
      if (ok) ok = gather(channel, staged, part);
      if (ok) ok = queues_.record(c.marks.done, queue_of(channel));
      if (ok) ok = reach(c.marks.done);
      for (std::size_t rank = 0; rank < ranks && ok; ++rank) {
        ok = device_.download(host + rank * c.part_bytes + at, staged + rank * part, copied);
      }
      if (!ok) return ok;
      at += copied;
    } while (at < c.part_bytes);
    return {};
  }

  Result<void> reach(kernels::Mark mark) {
    const auto there = posts_.reach({mark, nullptr, {}}, options_.deadline_s);
    if (!there) return tl::unexpected(there.error());
    return *there ? Result<void>() : give_up("an exchange of numbers");
  }

  const NcclLibrary& library_;
  Device& device_;
  kernels::Queues& queues_;
  std::unique_ptr<Ops> ops_;
  Posts posts_;
  TransportOptions options_;
  WorldInfo world_;
  kernels::Buffer staging_;
  std::array<ncclComm_t, kChannels> comms_{};
  std::vector<const void*> parts_;
  void* scratch_ = nullptr;
  Totals totals_{};
  std::optional<Error> error_;
};

}  // namespace

Result<std::string> nccl_version() {
  const auto library = nccl_library();
  if (!library) return tl::unexpected(library.error());
  int version = 0;
  (void)(*library)->get_version(&version);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<NcclWorld> make_nccl_world(int size) {
  const auto library = nccl_library();
  if (!library) return tl::unexpected(library.error());
  NcclWorld world;
  world.size = size;
  for (NcclWorld::Id& bytes : world.ids) {
    ncclUniqueId id;
    static_assert(sizeof id == sizeof bytes);
    const ncclResult_t result = (*library)->get_unique_id(&id);
    if (result != ncclSuccess) {
      return fail(ErrorKind::kFailed, fmt::format("NCCL gives no id: {}", (*library)->get_error_string(result)));
    }
    std::memcpy(bytes.data(), &id, sizeof id);
  }
  return world;
}

Result<std::unique_ptr<Communicator>> join_nccl(const NcclWorld& world, int rank, Device& device,
                                                const TransportOptions& options) {
  const auto library = nccl_library();
  if (!library) return tl::unexpected(library.error());
  if (device.queues() == nullptr) {
    return fail(ErrorKind::kUsage,
                "--transport nccl brings GPUs together, and " + device.facts().id + " is none; add --device cuda");
  }
  if (auto ok = device.synchronize(); !ok) return tl::unexpected(ok.error());  // the GPU is this thread's now
  auto ops = make_ops(device, 0);
  if (!ops) return tl::unexpected(ops.error());
  auto posts = Posts::make(*device.queues());
  if (!posts) return tl::unexpected(posts.error());
  auto made = std::make_unique<Nccl>(**library, device, std::move(*ops), std::move(*posts), options);
  if (auto ok = made->join(world, rank); !ok) return tl::unexpected(ok.error());
  return made;
}

}  // namespace attnbench::fsdp
