// Turns a planned case, a machine and what was measured into a row. Pure but for the time of day and the load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/base/stats.hpp"
#include "bench/measure/sampler.hpp"
#include "bench/measure/verify.hpp"
#include "bench/plan/plan.hpp"
#include "bench/run/host.hpp"
#include "reports/row.hpp"

namespace attnbench::run {

/// What all rows of a sweep share.
struct Provenance {
  std::string run_id;
  std::string command;
  std::uint64_t seed = 1;  // of the sweep, as --seed takes it
  HostFacts host;
  std::string sampling = {};  // the rule, as options
};

/// What a case is, known before anything runs: kernel, problem, device.
reports::Row identity(const plan::Case& c);

/// Identity, work and provenance of a case; the outcome is empty. `kernel` may be null (a case that was refused).
reports::Row describe(const plan::Case& c, const kernels::DeviceFacts& device, const kernels::KernelInfo* kernel,
                      const Provenance& provenance);

/// Statistics, rates and the raw samples.
void add_times(reports::Row& row, const measure::Series& series, const kernels::StopwatchInfo& stopwatch);

void add_verdict(reports::Row& row, const measure::Verdict& verdict);

/// Share of the measured multiply-add peak, for rows that compute in fp32.
void add_peak(reports::Row& row, std::optional<double> peak_gflops);

/// Adds a sentence to the note.
void add_note(reports::Row& row, const std::string& sentence);

/// Status and reason, and the time of day.
void finish(reports::Row& row, const char* status, const std::string& reason);

}  // namespace attnbench::run
