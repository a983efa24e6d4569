// Checks the kernels of one point, then samples them together.
#include "bench/run/point.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "bench/base/units.hpp"
#include "bench/run/slow_down.hpp"

namespace attnbench::run {
namespace {

using base::ErrorKind;
using base::Result;
namespace status = reports::status;

/// Share of the free memory that kernels of a point may fill together; beyond, they run one after the other.
constexpr double kShareTogether = 0.8;

const char* status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kOutOfMemory:
      return status::kOom;
    case ErrorKind::kUnsupported:
      return status::kUnsupported;
    case ErrorKind::kTimeout:
      return status::kTimeout;
    case ErrorKind::kDeviceLost:
      return status::kDeviceLost;
    case ErrorKind::kInterrupted:
      return status::kInterrupted;
    default:
      return status::kFailed;
  }
}

std::optional<std::int64_t> as_integer(std::optional<std::uint64_t> value) {
  if (!value) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

/// Every kernel of a processor keeps its sums in fp32; a library's own half-precision product may not.
bool computes_in_fp32(const reports::Row& row) {
  return row.dtype == "fp32" || row.kernel != "blas" || row.variant.find("fp32") != std::string::npos;
}

}  // namespace

const kernels::KernelInfo* find_kernel(const plan::Candidate& candidate, const plan::Case& c) {
  for (const kernels::KernelInfo* kernel : candidate.kernels) {
    if (kernel->name == c.kernel && kernel->variant == c.variant) return kernel;
  }
  ATTNBENCH_ENSURE(false, "every kernel of a plan is one of its candidate's");
  return nullptr;
}

std::vector<reports::Row> PointRun::run(const std::vector<const plan::Case*>& cases, const plan::Candidate& candidate,
                                        std::optional<double> peak_gflops) {
  peak_gflops_ = peak_gflops;
  try {
    inputs_ = measure::make_inputs(cases.front()->problem, cases.front()->pass, cases.front()->seed, pool_);
    if (fit_together(cases)) {
      run_group(cases, candidate);
    } else {
      for (const plan::Case* c : cases) {
        if (!stop_()) run_group({c}, candidate);
      }
    }
  } catch (const std::bad_alloc&) {
    // The device counts and refuses; this is the harness's own memory (inputs, outputs, the oracle's results).
    for (std::size_t i = rows_.size(); i < cases.size(); ++i) {
      Lane lane{cases[i], describe(*cases[i], device_.facts(), find_kernel(candidate, *cases[i]), settings_.provenance),
                nullptr, nullptr};
      fail(lane, {ErrorKind::kOutOfMemory,
                  "the host has no memory for the inputs and the check; try a shorter "
                  "--seq-len or a smaller --batch"});
      rows_.push_back(std::move(lane.row));
    }
  }
  return std::move(rows_);
}

bool PointRun::fit_together(const std::vector<const plan::Case*>& cases) const {
  double sum = 0;
  for (const plan::Case* c : cases) sum += static_cast<double>(c->predicted_bytes);
  sum += static_cast<double>(cases.front()->harness_bytes);
  return cases.size() == 1 || sum <= kShareTogether * static_cast<double>(device_.memory_free_bytes());
}

void PointRun::run_group(const std::vector<const plan::Case*>& cases, const plan::Candidate& candidate) {
  std::vector<Lane> lanes;
  for (const plan::Case* c : cases) {
    if (device_lost()) {
      lanes.push_back({c, describe(*c, device_.facts(), find_kernel(candidate, *c), settings_.provenance), {}, {}});
    } else if (!stop_()) {
      lanes.push_back(prepare(*c, candidate));
    }
  }
  if (!device_lost()) sample(lanes);
  for (Lane& lane : lanes) {
    if (lane.row.status.empty()) {
      fail(lane, {ErrorKind::kDeviceLost, fmt::format("{} was lost at {}; to go on with the rest: {}",
                                                      lane.plan_case->device, lost_at_, settings_.resume_command)});
    }
    rows_.push_back(std::move(lane.row));
  }
}

Lane PointRun::open(const plan::Case& c, const plan::Candidate& candidate) {
  inputs_ = measure::make_inputs(c.problem, c.pass, c.seed, pool_);
  return prepare(c, candidate);
}

Lane PointRun::prepare(const plan::Case& c, const plan::Candidate& candidate) {
  starting_(c);
  const kernels::KernelInfo& kernel = *find_kernel(candidate, c);
  Lane lane{&c, describe(c, device_.facts(), &kernel, settings_.provenance), nullptr, nullptr};
  device_.reset_peak();
  const std::uint64_t before = device_.allocated_bytes();
  const auto probe = device_.memory_probe();
  auto workload = measure::Workload::make(kernel, c.problem, c.pass, c.deterministic, *inputs_, device_);
  Result<void> ok;
  if (workload) {
    lane.workload = std::move(*workload);
    lane.row.variant = lane.workload->variant();
    ok = lane.workload->first_launch();
  } else {
    ok = tl::unexpected(workload.error());
  }
  const kernels::MemoryReading memory = probe->stop();
  if (ok) {
    lane.row.peak_bytes = static_cast<std::int64_t>(device_.peak_allocated_bytes() - before);
    lane.row.workspace_bytes = static_cast<std::int64_t>(lane.workload->workspace_bytes());
    lane.row.peak_rss_bytes = as_integer(memory.peak_rss_bytes);
    lane.row.peak_device_bytes = as_integer(memory.peak_device_bytes);
    if (memory.peak_device_bytes) lane.row.foreign_memory = memory.foreign ? 1 : 0;
    ok = check(lane, kernel);
  }
  if (ok && lane.row.status.empty()) {
    measure::Workload* launched = lane.workload.get();
    kernels::Launch launch = [launched] { return launched->launch(); };
    const double slower_pct = slow_down_pct(settings_.sampling.slow_downs, c.kernel, c.variant);
    const bool declared = device_.facts().kind == kernels::DeviceKind::kMock;
    if (slower_pct > 0) {
      add_note(lane.row, fmt::format("slowed down by {} % on purpose (--slow-down)", slower_pct));
      if (!declared) launch = slowed(std::move(launch), slower_pct);
    }
    auto stopwatch = device_.stopwatch(std::move(launch), {c.cache, c.timing});
    if (stopwatch) {
      lane.stopwatch = slower_pct > 0 && declared ? slowed(std::move(*stopwatch), slower_pct) : std::move(*stopwatch);
    } else {
      ok = tl::unexpected(stopwatch.error());
    }
  }
  if (!ok) fail(lane, ok.error());
  if (!lane.stopwatch) lane.workload.reset();
  return lane;
}

Result<void> PointRun::check(Lane& lane, const kernels::KernelInfo& kernel) {
  const plan::Case& c = *lane.plan_case;
  auto outputs = lane.workload->download();
  if (!outputs) return tl::unexpected(outputs.error());
  if (!reference_) reference_ = measure::make_reference(c.problem, c.pass, *inputs_, c.seed, pool_);
  const measure::Bounds bounds = measure::bounds_for(kernel.tolerance(c.problem), measure::largest_lse(*reference_));
  const measure::Verdict verdict = measure::compare(c.problem, c.pass, *reference_, *outputs, bounds);
  add_verdict(lane.row, verdict);
  if (!verdict.passed()) finish(lane.row, status::kIncorrect, verdict.reason());
  return {};
}

void PointRun::sample(std::vector<Lane>& lanes) {
  std::vector<kernels::Stopwatch*> stopwatches;
  std::vector<Lane*> timed;
  const measure::Surroundings world = measure::surroundings(stop_);
  for (Lane& lane : lanes) {
    if (!lane.stopwatch || !warm_up(lane, world)) continue;
    stopwatches.push_back(lane.stopwatch.get());
    timed.push_back(&lane);
  }
  const auto series = measure::take_samples(stopwatches, settings_.sampling, world);
  for (std::size_t i = 0; i < timed.size(); ++i) {
    timed[i]->row.interleaved = static_cast<std::int64_t>(timed.size());
    settle(*timed[i], series[i]);
  }
}

/// False: the row ended there.
bool PointRun::warm_up(Lane& lane, const measure::Surroundings& world) {
  if (!settings_.sampling.sustained) return true;
  const auto ok = measure::warm_up(*lane.stopwatch, cli::kSustainedS, world);
  if (ok) {
    add_note(lane.row, fmt::format("launched for {} s before the first sample", cli::kSustainedS));
  } else if (ok.error().kind == ErrorKind::kInterrupted) {
    fail(lane, {ErrorKind::kInterrupted, stop_reason()});
  } else {
    fail(lane, ok.error());
  }
  return ok.has_value();
}

void PointRun::settle(Lane& lane, const measure::Series& series) {
  lane.row.stop_reason = std::string(measure::to_string(series.stop));
  lane.row.samples = static_cast<std::int64_t>(series.times_us.size());
  switch (series.stop) {
    case measure::StopReason::kError:
      fail(lane, series.error.value_or(base::Error{}));
      return;
    case measure::StopReason::kInterrupted:
      fail(lane, {ErrorKind::kInterrupted, stop_reason()});
      return;
    case measure::StopReason::kTimeout:
      fail(lane,
           {ErrorKind::kTimeout,
            fmt::format("{} of at least {} samples within {}; a longer --time-limit or a smaller problem would do",
                        series.times_us.size(), settings_.sampling.samples_min,
                        base::format_time_us(series.wall_s * 1e6))});
      return;
    default:
      break;
  }
  add_times(lane.row, series, lane.stopwatch->info());
  if (device_.facts().kind == kernels::DeviceKind::kCpu && computes_in_fp32(lane.row)) add_peak(lane.row, peak_gflops_);
  finish(lane.row, status::kOk, {});
}

std::string PointRun::stop_reason() const {
  const std::string who = settings_.interrupted && settings_.interrupted() ? "stopped by the user"
                                                                           : "the time limit of the run was reached";
  return fmt::format("{}; to go on: {}", who, settings_.resume_command);
}

void PointRun::fail(Lane& lane, const base::Error& error) {
  finish(lane.row, status_of(error.kind), error.message);
  if (error.kind == ErrorKind::kDeviceLost && lost_at_.empty()) lost_at_ = lane.plan_case->key;
}

}  // namespace attnbench::run
