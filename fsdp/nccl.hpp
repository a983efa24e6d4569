// Ranks as GPUs that talk through NCCL.
#pragma once

#include <memory>

#include "bench/base/error.hpp"
#include "fsdp/communicator.hpp"

namespace attnbench::fsdp {

/// One rank of a world of GPUs.
///
/// Errors  kAbsent: this build has no NCCL communicator
base::Result<std::unique_ptr<Communicator>> make_nccl(int rank, int size, Device& device);

}  // namespace attnbench::fsdp
