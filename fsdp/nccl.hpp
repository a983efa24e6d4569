// Ranks as GPUs that talk through NCCL, which is opened when it is first asked for.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "bench/base/error.hpp"
#include "fsdp/communicator.hpp"
#include "fsdp/transport.hpp"

namespace attnbench::fsdp {

/// What the ranks of one world know before they can talk: one id for each channel, since two collectives on one NCCL
/// communicator wait for each other.
struct NcclWorld {
  using Id = std::array<char, 128>;
  std::array<Id, kChannels> ids{};
  int size = 1;
};

/// "2.28.9".   Errors  kAbsent: this build has no NCCL communicator, or libnccl.so.2 is not where the loader looks
base::Result<std::string> nccl_version();

/// Errors  as nccl_version; kFailed: NCCL's own
base::Result<NcclWorld> make_nccl_world(int size);

/// One rank's communicator: returns when all ranks have joined, or after the deadline. Ordered reductions send every
/// part to its owner, which adds them in fp32 in rank order; others are NCCL's, in the reduce type.
///
/// Errors  as nccl_version; kUsage: the device is no GPU; kFailed: a rank has not come, or NCCL's own
base::Result<std::unique_ptr<Communicator>> join_nccl(const NcclWorld& world, int rank, Device& device,
                                                      const TransportOptions& options);

}  // namespace attnbench::fsdp
