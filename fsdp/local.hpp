// Ranks as threads of one process: collectives read the memory of the other ranks.
#pragma once

#include <memory>

#include "fsdp/transport.hpp"

namespace attnbench::fsdp {

/// What the ranks of one process meet in. Outlives their transports only through them: make all of them first.
class LocalWorld;

std::shared_ptr<LocalWorld> make_local_world(int size, const TransportOptions& options);

/// One rank's end. Each rank is made once; its communicator is driven by one thread.
std::unique_ptr<Transport> join_local(std::shared_ptr<LocalWorld> world, int rank);

}  // namespace attnbench::fsdp
