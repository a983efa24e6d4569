// What --transport nccl answers in a build without it.
#include "fsdp/nccl.hpp"

namespace attnbench::fsdp {
namespace {

tl::unexpected<base::Error> absent() {
  return base::fail(base::ErrorKind::kAbsent,
                    "this build has no NCCL transport (nccl.h or CUDA was missing when configuring); take --transport "
                    "local (threads) or mpi (processes)");
}

}  // namespace

base::Result<std::string> nccl_version() { return absent(); }

base::Result<NcclWorld> make_nccl_world(int) { return absent(); }

base::Result<std::unique_ptr<Communicator>> join_nccl(const NcclWorld&, int, Device&, const TransportOptions&) {
  return absent();
}

}  // namespace attnbench::fsdp
