// Threads that share one record of who has ended; it outlives the call as long as any of them runs.
#include "bench/run/fsdp_local.hpp"

#include <cstdlib>
#include <string>

#include "fsdp/local.hpp"
#include "fsdp/nccl.hpp"
#include "fsdp/solo.hpp"
#include "kernels/catalog.hpp"

namespace attnbench::run {
namespace {

using base::Result;

constexpr double kGrace = 2;  // beyond the deadline, for ranks to notice that the run has ended

struct Shared {
  FsdpCase c;
  LocalBody body;
  std::vector<std::unique_ptr<kernels::Device>> devices;
  std::vector<std::unique_ptr<fsdp::Communicator>> communicators;  // they use the devices
  fsdp::NcclWorld nccl;
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  Result<void> result;  // the first error
};

Result<void> run_rank(Shared& shared, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  if (shared.c.transport_word == "nccl") {
    // Returns when all have joined, so each on its own thread.
    auto joined = fsdp::join_nccl(shared.nccl, rank, *shared.devices[index], shared.c.transport);
    if (!joined) return tl::unexpected(joined.error());
    shared.communicators[index] = std::move(*joined);
  }
  fsdp::Communicator& communicator = *shared.communicators[index];
  auto done = shared.body(rank, *shared.devices[index], communicator);
  if (!done) communicator.abort(done.error());
  return done;
}

void work(const std::shared_ptr<Shared>& shared, int rank) {
  const auto done = run_rank(*shared, rank);
  const std::scoped_lock lock(shared->mutex);
  if (!done && shared->result) shared->result = done;
  ++shared->ended;
  shared->changed.notify_all();
}

/// "cuda:2" for rank 2 of a world that begins at cuda:0.
std::string nth_device(const std::string& first, int rank) {
  const std::size_t colon = first.find(':');
  if (colon == std::string::npos) return first;
  return first.substr(0, colon + 1) + std::to_string(std::atoi(first.c_str() + colon + 1) + rank);
}

/// The rank's device and its end of the world.
Result<void> join(Shared& shared, const std::shared_ptr<fsdp::LocalWorld>& world, int rank) {
  const FsdpCase& c = shared.c;
  const bool nccl = c.transport_word == "nccl";
  auto device = kernels::open_device(nccl ? nth_device(c.device, rank) : c.device);
  if (!device) return tl::unexpected(device.error());
  (*device)->set_threads(c.threads);
  shared.devices.push_back(std::move(*device));
  kernels::Device& mine = *shared.devices.back();
  if (nccl) {
    shared.communicators.emplace_back();
    return {};
  }
  if (c.link && mine.queues() != nullptr) {
    return base::fail(base::ErrorKind::kUsage, "--link stretches collectives of processors; " + c.device +
                                                   " has none of them: leave one of the two out");
  }
  if (mine.queues() == nullptr && c.world > 1) {
    shared.communicators.push_back(communicator_for(c, fsdp::join_local(world, rank), c.transport));
    return {};
  }
  auto communicator = c.world == 1 ? fsdp::make_solo(mine) : fsdp::join_local(world, rank, mine, c.transport);
  if (!communicator) return tl::unexpected(communicator.error());
  shared.communicators.push_back(std::move(*communicator));
  return {};
}

}  // namespace

LocalEnd run_local_world(const FsdpCase& c, LocalBody body) {
  const auto shared = std::make_shared<Shared>();
  shared->c = c;
  shared->body = std::move(body);
  const auto world = fsdp::make_local_world(c.world, c.transport);
  if (c.transport_word == "nccl") {
    auto nccl = fsdp::make_nccl_world(c.world);
    if (!nccl) return {tl::unexpected(nccl.error()), false};
    shared->nccl = *nccl;
  }
  for (int rank = 0; rank < c.world; ++rank) {
    if (auto ok = join(*shared, world, rank); !ok) return {ok, false};
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < c.world; ++rank) threads.emplace_back([shared, rank] { work(shared, rank); });
  LocalEnd end;
  {
    std::unique_lock lock(shared->mutex);
    const auto all = [&] { return shared->ended == c.world; };
    shared->changed.wait(lock, [&] { return all() || !shared->result; });
    const auto patience = std::chrono::duration<double>(c.transport.deadline_s + kGrace);
    end.stuck = !shared->changed.wait_for(lock, patience, all);
    end.result = shared->result;
  }
  for (std::thread& thread : threads) {
    if (end.stuck) {
      thread.detach();
    } else {
      thread.join();
    }
  }
  return end;
}

}  // namespace attnbench::run
