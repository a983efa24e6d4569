// `attnbench gbench`: the planned points as a Google Benchmark program, timed by the stopwatch that sweep uses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/cli/devices.hpp"
#include "bench/cli/open_device.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/measure/gbench_adapter.hpp"
#include "bench/measure/inputs.hpp"
#include "bench/measure/verify.hpp"
#include "bench/measure/workload.hpp"
#include "bench/plan/plan.hpp"
#include "bench/run/interrupt.hpp"
#include "bench/run/point.hpp"
#include "kernels/work.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::Result;

int complain(const base::Error& error) {
  fmt::print(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

/// The one case that is resident: opened when its turn comes, closed after it. Devices stay open from case to case.
class Stage {
 public:
  explicit Stage(std::span<const plan::Candidate> candidates)
      : candidates_(candidates), pool_(static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {}

  const kernels::KernelInfo& kernel(const plan::Case& c) const {
    const auto candidate = std::find_if(candidates_.begin(), candidates_.end(),
                                        [&](const plan::Candidate& item) { return item.facts.id == c.device; });
    ATTNBENCH_ENSURE(candidate != candidates_.end(), "every device of a plan is one of its candidates");
    return *run::find_kernel(*candidate, c);
  }

  /// Inputs, launch, check, stopwatch: as sweep does, in that order. A wrong result is an error here.
  Result<void> open(const plan::Case& c) {
    if (run::interrupted()) return stopped();
    if (!c.refused_status.empty()) return base::fail(ErrorKind::kUnsupported, c.refused_reason);
    if (auto ok = open_device(c); !ok) return ok;
    const measure::Inputs inputs = measure::make_inputs(c.problem, c.pass, c.seed, pool_);
    auto workload = measure::Workload::make(kernel(c), c.problem, c.pass, c.deterministic, inputs, *device_);
    if (!workload) return tl::unexpected(workload.error());
    workload_ = std::move(*workload);
    if (auto ok = workload_->first_launch(); !ok) return ok;
    const auto outputs = workload_->download();
    if (!outputs) return tl::unexpected(outputs.error());
    const auto reference = measure::make_reference(c.problem, c.pass, inputs, c.seed, pool_);
    const auto verdict = measure::compare(c.problem, c.pass, reference, *outputs, kernel(c).tolerance(c.problem));
    if (!verdict.passed()) return base::fail(ErrorKind::kFailed, verdict.reason());
    auto stopwatch = device_->stopwatch([this] { return workload_->launch(); }, {c.cache, c.timing});
    if (!stopwatch) return tl::unexpected(stopwatch.error());
    stopwatch_ = std::move(*stopwatch);
    return {};
  }

  Result<double> sample_us() {
    if (run::interrupted()) return tl::unexpected(stopped().error());
    const auto sample = stopwatch_->take();
    if (!sample) return tl::unexpected(sample.error());
    return sample->time_us;
  }

  void close() {
    stopwatch_.reset();
    workload_.reset();
  }

 private:
  static Result<void> stopped() { return base::fail(ErrorKind::kInterrupted, "stopped by the user"); }

  Result<void> open_device(const plan::Case& c) {
    if (device_ == nullptr || device_->facts().id != c.device) {
      device_.reset();
      auto opened = cli::open_device(c.device);
      if (!opened) return tl::unexpected(opened.error());
      device_ = std::move(*opened);
    }
    if (c.threads > 0) device_->set_threads(c.threads);
    return {};
  }

  std::span<const plan::Candidate> candidates_;
  kernels::ThreadPool pool_;  // for inputs and oracle; asleep while a kernel is timed
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<measure::Workload> workload_;
  std::unique_ptr<kernels::Stopwatch> stopwatch_;
};

/// As many as fill the least measured time by the prediction, within the bounds of --min-samples and --max-samples.
std::int64_t iterations_for(const plan::Case& c, const Sampling& sampling) {
  const double wanted = c.predicted_time_us > 0 ? std::ceil(sampling.time_min_s * 1e6 / c.predicted_time_us) : 1.0;
  return static_cast<std::int64_t>(
      std::clamp(wanted, static_cast<double>(sampling.samples_min), static_cast<double>(sampling.samples_max)));
}

std::vector<measure::GbenchEntry> entries_of(const plan::Plan& plan, const Sampling& sampling, Stage& stage) {
  std::vector<measure::GbenchEntry> entries;
  for (const plan::Point& point : plan.points) {
    for (const plan::Case& c : point.cases) {
      measure::GbenchEntry entry;
      entry.name = c.key;
      entry.iterations = iterations_for(c, sampling);
      entry.flops = kernels::model_flops(c.problem, c.pass);
      entry.bytes = kernels::model_bytes(c.problem, c.pass, stage.kernel(c).materialises);
      entry.open = [&stage, &c] { return stage.open(c); };
      entry.sample_us = [&stage] { return stage.sample_us(); };
      entry.close = [&stage] { stage.close(); };
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

}  // namespace

int gbench_verb(const GbenchOptions& options) {
  const auto candidates = find_candidates(options.sweep.devices);
  if (!candidates) return complain(candidates.error());
  const auto plan = plan::make_plan(options.sweep, *candidates);
  if (!plan) return complain(plan.error());
  const run::InterruptGuard guard;
  Stage stage(*candidates);
  const auto entries = entries_of(*plan, options.sweep.sampling, stage);
  const auto errors = measure::run_gbench(entries, "attnbench gbench", options.benchmark_args);
  if (!errors) return complain(errors.error());
  if (run::interrupted()) return 128 + run::interrupt_signal();
  return *errors > 0 ? base::exit_code::kRowFailed : base::exit_code::kOk;
}

}  // namespace attnbench::cli
