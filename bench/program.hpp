// The seam between the executable, which only parses, and libattnbench_program.so, which does the work.
#pragma once

#include "bench/cli/parse.hpp"

namespace attnbench {

/// Runs the verb of a command; returns the exit code. Needs the two sides to come from one build: they share C++ types.
using ProgramFunction = int (*)(const cli::Command* command);
inline constexpr const char* kProgramSymbol = "attnbench_program_run";
inline constexpr const char* kProgramLibrary = "libattnbench_program.so";

}  // namespace attnbench
