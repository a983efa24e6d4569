// Numbers that ranks tell each other outside a step: times, errors, facts.
#pragma once

#include <span>
#include <vector>

#include "bench/base/error.hpp"
#include "fsdp/communicator.hpp"

namespace attnbench::fsdp {

/// Every rank's numbers, those of rank 0 first; all ranks give as many. A barrier as well.
base::Result<std::vector<double>> share_numbers(Communicator& communicator, std::span<const double> mine);

}  // namespace attnbench::fsdp
