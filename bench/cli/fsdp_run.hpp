// Runs one case of the fsdp verb wherever its ranks are: threads here, processes that are started, or this world.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/measure/trajectory.hpp"
#include "bench/run/fsdp_case.hpp"
#include "bench/run/fsdp_replay.hpp"
#include "bench/run/provenance.hpp"
#include "fsdp/launch.hpp"
#include "reports/row.hpp"

namespace attnbench::cli {

/// What all cases of a run share.
struct FsdpRun {
  const FsdpCommand* command = nullptr;
  run::Provenance provenance;
  kernels::DeviceFacts device;
  std::optional<double> gemm_peak_gflops;
  std::optional<measure::Trajectory> trajectory;  // of --verify
};

/// A finished case: its row, and with --verify the comparisons.
struct FsdpOutcome {
  reports::Row row;
  std::vector<run::ReplayError> errors;
  bool stuck = false;  // a thread of this process hangs: leave with _exit
};

/// Facts of the device, the file to follow and, for whoever writes the rows, the ceiling of products.
///
/// Errors  kUnreadable, kAbsent
base::Result<FsdpRun> open_run(const FsdpCommand& command, std::string run_id, bool writes_rows);

/// Ranks as threads.
FsdpOutcome run_local(const FsdpRun& run, const run::FsdpCase& c);
/// Ranks as processes that this one starts.
FsdpOutcome run_processes(const FsdpRun& run, const run::FsdpCase& c);
/// This process is a rank of a world that runs the case now. Only rank 0 has an outcome.
base::Result<std::optional<FsdpOutcome>> run_as_rank(const FsdpRun& run, run::FsdpCase c, fsdp::Observer* observer);

/// The same, with a GPU (the case's device) and NCCL.
base::Result<std::optional<FsdpOutcome>> run_as_gpu(const FsdpRun& run, const run::FsdpCase& c,
                                                    const fsdp::ForeignWorld& world);

/// Rank 0 of a started world writes its outcome where run_processes reads it.
base::Result<void> write_outcome(const FsdpOutcome& outcome, const std::string& directory);

}  // namespace attnbench::cli
