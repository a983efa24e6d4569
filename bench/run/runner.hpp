// Plan in, rows out: the only arrow that touches a device.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "bench/base/error.hpp"
#include "bench/cli/options.hpp"
#include "bench/plan/plan.hpp"
#include "bench/run/provenance.hpp"
#include "bench/run/sink.hpp"
#include "kernels/device/device.hpp"
#include "reports/row.hpp"

namespace attnbench::run {

/// What a run needs beside its plan; the functions are the world, so that tests can script it.
struct RunSettings {
  cli::Sampling sampling;
  double run_limit_s = 0;  // whole run; 0: none
  Provenance provenance;
  std::set<std::string> finished;  // keys that an earlier part of this run has done: passed over
  std::string resume_command;      // what to type to go on, for reasons of rows
  std::function<base::Result<std::unique_ptr<kernels::Device>>(const std::string& id)> open;
  std::function<std::optional<double>(kernels::Device&)> peak_gflops;  // may be empty
  std::function<bool()> interrupted;
};

/// Where the run is: rows done, rows to do, and the case that is being worked on.
struct RunProgress {
  std::size_t done = 0;
  std::size_t total = 0;
  const plan::Case* current = nullptr;
};

/// Called for every row as it finishes, after the sinks; and when another case starts.
using ProgressCallback = std::function<void(const RunProgress&)>;

struct RunSummary {
  std::map<std::string, std::size_t> by_status;
  bool interrupted = false;
  bool limit_reached = false;
  std::optional<base::Error> error;  // a sink failed, or a device could not be opened: the run ended there

  std::size_t count(const std::string& status) const;
  /// Rows that make the run end with exit code 3.
  std::size_t failures() const;
};

/// Runs every case of the plan in order: inputs, launch, check against the oracle, samples, row. Kernels of a point are
/// sampled in turn when their memory fits together, else one after the other. What goes wrong with a case becomes its
/// row; the run goes on unless a sink fails.
///
/// Memory  one point at a time; buffers are freed before the next
RunSummary run_plan(const plan::Plan& plan, std::span<const plan::Candidate> candidates, const RunSettings& settings,
                    std::span<RowSink* const> sinks, const ProgressCallback& progress);

/// Statuses that --resume passes over: what another try would not change. The others (interrupted, failed, device_lost,
/// timeout) are run again.
bool is_final(const std::string& status);

}  // namespace attnbench::run
