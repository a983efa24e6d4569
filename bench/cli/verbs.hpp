// One function per verb: options in, exit code out. Each lives in its own file, <verb>.cpp.
#pragma once

#include <string>
#include <vector>

#include "bench/cli/options.hpp"

namespace attnbench::cli {

struct ListOptions {
  std::string what;  // kernels, devices, columns
  std::vector<std::string> devices{"auto"};
};

struct ExplainOptions {
  std::string column;
};

struct DoctorOptions {};

/// The planned points as a Google Benchmark program; `benchmark_args` are its own flags, passed through.
struct GbenchOptions {
  SweepOptions sweep;
  std::vector<std::string> benchmark_args;
};

/// Training on several ranks.
struct FsdpCommand {
  FsdpOptions options;
  Outputs outputs;
  std::uint64_t seed = 1;
  bool dry_run = false;
  bool try_oom = false;
  std::string command;
};

/// Two runs, or folders of runs, against each other; with self_test only `base` counts, and may be empty.
struct CompareOptions {
  std::string base, next;
  Comparing comparing;
  Outputs outputs;
};

/// A plan run several times over; `arguments` are what a sweep of it would be started with, as --option=value.
struct NoiseOptions {
  std::vector<std::string> arguments;
  int launches = 3;
  std::string out_dir;  // of the launches; empty: a folder that goes away
  std::string file;
};

int sweep_verb(const SweepOptions& options);
int report_verb(const ReportOptions& options);
int verify_verb(const VerifyOptions& options);
int gbench_verb(const GbenchOptions& options);
int fsdp_verb(const FsdpCommand& command);
int compare_verb(const CompareOptions& options);
int noise_verb(const NoiseOptions& options);
int list_verb(const ListOptions& options);
int explain_verb(const ExplainOptions& options);
int doctor_verb(const DoctorOptions& options);

}  // namespace attnbench::cli
