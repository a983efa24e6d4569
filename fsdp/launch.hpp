// Ranks as processes of this machine: started through mpiexec, watched, and never left behind.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "fsdp/transport.hpp"

namespace attnbench::fsdp {

struct LaunchSpec {
  std::vector<std::string> command;  // what every rank runs: a program and its arguments
  int size = 1;
  std::string directory;  // exists; gets the board and the log of the ranks
  double patience_s = 5;  // for ranks to end by themselves once the run has failed
  std::function<bool()> interrupted;
};

/// How it ended: empty failure if every rank left in good order.
struct LaunchOutcome {
  std::string failure;  // names the rank and the collective where there is one
  bool interrupted = false;
};

/// Starts the ranks and waits for all of them; when it returns, none is left. MPI must not have been started in this
/// process. If this process dies, mpiexec ends the ranks.
///
/// Errors  kAbsent: no mpiexec on PATH; kFailed: it cannot be started
base::Result<LaunchOutcome> launch_ranks(const LaunchSpec& spec);

/// Whether mpiexec and the module are here.   Errors  kAbsent, with what to install
base::Result<void> check_mpi();

/// The world that somebody else has started this process in.
struct ForeignWorld {
  std::string launcher;  // mpiexec, srun, torchrun
  int rank = 0;
  int size = 1;
};
/// From the environment variables of OpenMPI, PMIx, Slurm and torchrun; empty: this process was started alone.
std::optional<ForeignWorld> foreign_world();

/// Runs this process's rank of an MPI world. With a directory (that of LaunchSpec) its state is on the board there.
/// Returns 0, or ends all ranks with 3 after writing the error to standard error.
/// The body makes its communicator with the options that it is given.
using RankBody = std::function<base::Result<void>(std::unique_ptr<Transport>, const TransportOptions&)>;
int run_mpi_rank(const std::string& directory, TransportOptions options, const RankBody& body);

}  // namespace attnbench::fsdp
