// Ranks as processes of this machine: started through mpiexec, watched, and never left behind.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "fsdp/rendezvous.hpp"
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
  int local_rank = 0;  // among those of this machine
  MeetingPoint point;  // torchrun's, one port further: its own store is at MASTER_PORT
};
/// From the environment variables of OpenMPI, PMIx, Slurm and torchrun; empty: this process was started alone.
std::optional<ForeignWorld> foreign_world();

/// Joins the MPI world: a transport with channels of its own each time.   Errors  kAbsent, kFailed
base::Result<std::unique_ptr<Transport>> join_mpi(const TransportOptions& options);

/// Runs this process as a rank of an MPI world. With a directory (that of LaunchSpec) its state is on the board there,
/// and the body gets the board's observer. Returns 0; or, after an error, writes it to standard error and ends all
/// ranks with 3.
using RankBody = std::function<base::Result<void>(Observer* observer)>;
int run_mpi_rank(const std::string& directory, const RankBody& body);

}  // namespace attnbench::fsdp
