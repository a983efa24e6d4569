// Threads that share one record of who has ended; it outlives the call as long as any of them runs.
#include "bench/run/fsdp_local.hpp"

#include "fsdp/local.hpp"
#include "fsdp/solo.hpp"
#include "kernels/catalog.hpp"

namespace attnbench::run {
namespace {

using base::Result;

constexpr double kGrace = 2;  // beyond the deadline, for ranks to notice that the run has ended

struct Shared {
  FsdpCase c;
  LocalBody body;
  std::vector<std::unique_ptr<fsdp::Communicator>> communicators;
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  Result<void> result;  // the first error
};

Result<void> run_rank(Shared& shared, int rank) {
  const auto backend = kernels::find_backend("cpu");
  if (!backend) return tl::unexpected(backend.error());
  auto device = (*backend)->open(0);
  if (!device) return tl::unexpected(device.error());
  (*device)->set_threads(shared.c.threads);
  fsdp::Communicator& communicator = *shared.communicators[static_cast<std::size_t>(rank)];
  auto done = shared.body(rank, **device, communicator);
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

}  // namespace

LocalEnd run_local_world(const FsdpCase& c, LocalBody body) {
  const auto shared = std::make_shared<Shared>();
  shared->c = c;
  shared->body = std::move(body);
  const auto world = fsdp::make_local_world(c.world, c.transport);
  for (int rank = 0; rank < c.world; ++rank) {
    shared->communicators.push_back(c.world == 1 ? fsdp::make_solo()
                                                 : communicator_for(c, fsdp::join_local(world, rank), c.transport));
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
