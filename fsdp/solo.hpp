// A world of one rank: nothing travels, gradients are copied where a reduction would put them.
#pragma once

#include <memory>

#include "fsdp/communicator.hpp"

namespace attnbench::fsdp {

std::unique_ptr<Communicator> make_solo();

}  // namespace attnbench::fsdp
