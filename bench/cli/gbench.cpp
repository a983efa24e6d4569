// `attnbench gbench`: the planned cases as a Google Benchmark program.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "bench/base/version.hpp"
#include "bench/cli/devices.hpp"
#include "bench/cli/print.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/measure/gbench_adapter.hpp"
#include "bench/plan/plan.hpp"
#include "bench/run/interrupt.hpp"
#include "bench/run/point.hpp"
#include "bench/run/runner.hpp"
#include "kernels/catalog.hpp"

namespace attnbench::cli {
namespace {

using measure::GbenchSession;

constexpr double kMostIterations = 1000;
constexpr double kMostAsked = 1e9;  // as many as Google Benchmark would run

int complain(const base::Error& error) {
  print_to(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

/// As many launches, with their cache flushes, as the time holds by the plan's prediction, and no fewer than a row
/// takes samples. `asked_s` is what --benchmark_min_time says; without it a row's least time, and not for ever.
std::int64_t iterations_of(const plan::Case& c, const Sampling& sampling, std::optional<double> asked_s) {
  const double each_us = std::max(1.0, c.predicted_time_us + c.predicted_flush_us);
  const double wanted = std::ceil(asked_s.value_or(sampling.time_min_s) * 1e6 / each_us);
  const auto bounded = static_cast<std::int64_t>(std::min(wanted, asked_s ? kMostAsked : kMostIterations));
  return std::max<std::int64_t>(bounded, std::max(1, sampling.samples_min));
}

/// The device and the case that are open; one at a time, since a case owns its memory.
class Opener {
 public:
  explicit Opener(const SweepOptions& options) {
    settings_.sampling = options.sampling;
    settings_.provenance = {run::utc_now(), options.command, options.seed, {}};
    settings_.open = &kernels::open_device;
  }

  GbenchSession open(const plan::Case& c, const plan::Candidate& candidate) {
    GbenchSession session;
    lane_.reset();
    point_.reset();
    if (!c.refused_status.empty()) {
      session.error = fmt::format("{}: {}", c.refused_status, c.refused_reason);
      return session;
    }
    if (auto ok = use_device(c.device); !ok) {
      session.error = ok.error().message;
      return session;
    }
    if (c.threads > 0) device_->set_threads(c.threads);
    point_ = std::make_unique<run::PointRun>(*device_, pool_, settings_, stop_, [](const plan::Case&) {});
    lane_ = std::make_unique<run::Lane>(point_->open(c, candidate));
    const reports::Row& row = lane_->row;
    if (!lane_->stopwatch) {
      session.error = fmt::format("{}: {}", row.status, row.reason);
      return session;
    }
    session.label = row.variant;
    session.take_us = [this]() -> base::Result<double> {
      const auto sample = lane_->stopwatch->take();
      if (!sample) return tl::unexpected(sample.error());
      return sample->time_us;
    };
    if (row.flops_model) session.per_launch.emplace_back("flop_per_second", *row.flops_model);
    if (row.bytes_model) session.per_launch.emplace_back("bytes_per_second", *row.bytes_model);
    if (row.peak_bytes) session.plain.emplace_back("peak_bytes", static_cast<double>(*row.peak_bytes));
    if (row.err_rel_max) session.plain.emplace_back("err_rel_max", *row.err_rel_max);
    return session;
  }

 private:
  base::Result<void> use_device(const std::string& id) {
    if (device_ && device_id_ == id) return {};
    device_.reset();
    auto device = kernels::open_device(id);
    if (!device) return tl::unexpected(device.error());
    device_ = std::move(*device);
    device_id_ = id;
    return {};
  }

  run::RunSettings settings_;
  std::function<bool()> stop_ = &run::interrupted;
  kernels::ThreadPool pool_{static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  std::string device_id_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<run::PointRun> point_;
  std::unique_ptr<run::Lane> lane_;  // last: its buffers go back to the device
};

}  // namespace

int gbench_verb(const GbenchOptions& options) {
  const auto candidates = find_candidates(options.sweep.devices);
  if (!candidates) return complain(candidates.error());
  const auto plan = plan::make_plan(options.sweep, *candidates);
  if (!plan) return complain(plan.error());
  Opener opener(options.sweep);
  const std::optional<double> asked_s = measure::asked_min_time_s(options.benchmark_args);
  std::vector<measure::GbenchCase> cases;
  for (const plan::Point& point : plan->points) {
    for (const plan::Case& c : point.cases) {
      const auto candidate = std::find_if(candidates->begin(), candidates->end(),
                                          [&](const plan::Candidate& other) { return other.facts.id == c.device; });
      ATTNBENCH_ENSURE(candidate != candidates->end(), "every device of a plan is one of the candidates");
      cases.push_back({c.key, iterations_of(c, options.sweep.sampling, asked_s),
                       [&opener, &c, &candidate = *candidate] { return opener.open(c, candidate); }});
    }
  }
  const base::BuildInfo& build = base::build_info();
  const run::InterruptGuard guard;
  const int code = measure::run_gbench("attnbench", options.benchmark_args, cases,
                                       {{"attnbench_version", std::string(build.version)},
                                        {"attnbench_commit", std::string(build.commit)},
                                        {"command", options.sweep.command}},
                                       &run::interrupted);
  return run::interrupted() ? run::interrupt_exit_code() : code;
}

}  // namespace attnbench::cli
