// A world of one rank: nothing travels, gradients are copied where a reduction would put them.
#pragma once

#include <memory>

#include "fsdp/communicator.hpp"

namespace attnbench::fsdp {

/// On the host's memory: done when it is posted.
std::unique_ptr<Communicator> make_solo();

/// On the device's queues where it has them.
base::Result<std::unique_ptr<Communicator>> make_solo(Device& device);

}  // namespace attnbench::fsdp
