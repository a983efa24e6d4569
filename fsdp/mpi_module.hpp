// The module that speaks MPI, opened when ranks are processes; without it the program runs all the same.
#pragma once

#include <memory>

#include "fsdp/transport.hpp"

namespace attnbench::fsdp {

/// What libattnbench_mpi.so exports as kMpiModuleSymbol.
struct MpiModule {
  const char* build_id = nullptr;
  /// Joins the world that mpiexec (or srun) started this process in; every rank calls it as often.
  /// Errors  kFailed: MPI cannot start, or not with several threads
  base::Result<std::unique_ptr<Transport>> (*join)(const TransportOptions& options) = nullptr;
  /// After the transports are gone.
  void (*leave)() = nullptr;
  /// Ends every rank with the exit code; does not return.
  void (*abort)(int code) = nullptr;
  const char* (*version)() = nullptr;
};
using MpiModuleFunction = const MpiModule* (*)();
inline constexpr const char* kMpiModuleFile = "libattnbench_mpi.so";
inline constexpr const char* kMpiModuleSymbol = "attnbench_mpi_module";

/// Opens it; the first answer stays. Does not start MPI.
///
/// Errors  kAbsent: built without MPI, MPI's library is not here, or the module belongs to another build; says which,
///         and what to install
base::Result<const MpiModule*> mpi_module();

}  // namespace attnbench::fsdp
