// What --transport nccl answers in a build without it.
#include "fsdp/nccl.hpp"

namespace attnbench::fsdp {

base::Result<std::unique_ptr<Communicator>> make_nccl(int, int, Device&) {
  return base::fail(base::ErrorKind::kAbsent,
                    "this build has no NCCL transport; take --transport local (threads) or mpi (processes)");
}

}  // namespace attnbench::fsdp
