// Ranks as threads of one process: collectives read the memory of the other ranks.
#pragma once

#include <memory>

#include "fsdp/ops.hpp"
#include "fsdp/transport.hpp"

namespace attnbench::fsdp {

/// What the ranks of one process meet in. Outlives their transports only through them: make all of them first.
class LocalWorld;

std::shared_ptr<LocalWorld> make_local_world(int size, const TransportOptions& options);

/// Where a rank's memory is, if it is a device's with queues: collectives are then enqueued there, and only their host
/// sides meet. Ranks may be on one device; its memory is that of all of them.
struct LocalDevice {
  kernels::Queues* queues = nullptr;
  Ops* ops = nullptr;
};

/// One rank's end. Each rank is made once; its communicator is driven by one thread.
std::unique_ptr<Transport> join_local(std::shared_ptr<LocalWorld> world, int rank, const LocalDevice& device = {});

/// The whole communicator of a rank on a device: on one with queues nobody waits for the device in a step.
base::Result<std::unique_ptr<Communicator>> join_local(std::shared_ptr<LocalWorld> world, int rank, Device& device,
                                                       const TransportOptions& options);

}  // namespace attnbench::fsdp
