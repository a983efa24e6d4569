// Options of the fsdp verb to the cases that are run, and a case back to the options of a rank.
#pragma once

#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/run/fsdp_case.hpp"

namespace attnbench::cli {

/// The product of the axes, world sizes innermost. Pure but for the number of processors.
///
/// Errors  kUsage: no such model, dimensions that do not fit together
base::Result<std::vector<run::FsdpCase>> fsdp_cases(const FsdpCommand& command);

/// Arguments for a rank that runs this one case and shares `directory` with whoever starts it.
std::vector<std::string> rank_arguments(const FsdpCommand& command, const run::FsdpCase& c,
                                        const std::string& directory);

}  // namespace attnbench::cli
