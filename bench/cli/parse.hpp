// The command line as values: which verb, with which options. Precedence: flag, environment, config file, default.
#pragma once

#include <map>
#include <span>
#include <string>
#include <variant>

#include "bench/base/error.hpp"
#include "bench/cli/options.hpp"
#include "bench/cli/verbs.hpp"

namespace attnbench::cli {

/// Text to print on standard output before leaving with 0: help, version.
struct Printout {
  std::string text;
};

using Command = std::variant<SweepOptions, ReportOptions, VerifyOptions, GbenchOptions, FsdpCommand, CompareOptions,
                             NoiseOptions, ListOptions, ExplainOptions, DoctorOptions, Printout>;

/// ATTNBENCH_* variables.
using Environment = std::map<std::string, std::string>;

Environment process_environment();

/// Turns the arguments after the program's name into a verb and its options.
///
/// Errors  kUsage: unknown verb, option, variable, key or word (the nearest is named), a wrong value (with a caret
///         under it), options that exclude each other. kUnreadable: a config file that cannot be read.
base::Result<Command> parse(std::span<const std::string> arguments, const Environment& environment);

/// Name of the variable that stands for an option: seq-len is ATTNBENCH_SEQ_LEN.
std::string variable_of(std::string_view option);

}  // namespace attnbench::cli
