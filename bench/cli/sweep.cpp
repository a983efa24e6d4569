// `attnbench sweep`: options to a plan, the plan to rows, rows to a folder, a table and reports.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "bench/cli/devices.hpp"
#include "bench/cli/open_device.hpp"
#include "bench/cli/sweep_files.hpp"
#include "bench/cli/sweep_output.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/plan/plan.hpp"
#include "bench/run/interrupt.hpp"
#include "bench/run/runner.hpp"
#include "kernels/device/cpu_device.hpp"
#include "kernels/lab/cpu/fma_peak.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::cli {
namespace {

namespace status = reports::status;

constexpr double kPeakSeconds = 0.5;
constexpr double kVerifyShare = 1.5;  // launches that inputs, oracle and verification cost beside the samples

int complain(const base::Error& error) {
  fmt::print(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

std::optional<double> peak_gflops(kernels::Device& device) {
  if (device.facts().kind != kernels::DeviceKind::kCpu) return std::nullopt;
  return kernels::measure_fma_peak(static_cast<kernels::CpuDevice&>(device).pool(), kPeakSeconds).gflops;
}

double predicted_s(const plan::Plan& plan, const Sampling& sampling) {
  double total = 0;
  for (const plan::Point& point : plan.points) {
    for (const plan::Case& c : point.cases) {
      const double launch_s = c.predicted_time_us * 1e-6;
      total += kVerifyShare * launch_s + std::max(sampling.samples_min * launch_s, sampling.time_limit_s);
    }
  }
  return total;
}

run::RunSettings settings_for(const SweepOptions& options, const SweepFolder& folder, const run::HostFacts& host) {
  run::RunSettings settings;
  settings.sampling = options.sampling;
  settings.run_limit_s = options.run_limit_s;
  settings.provenance = {run::utc_now() + "-" + std::to_string(::getpid()), options.command, options.seed, host};
  settings.finished = folder.finished;
  settings.resume_command = fmt::format("the same command with --resume --out {}", folder.directory);
  settings.open = &open_device;
  settings.peak_gflops = &peak_gflops;
  settings.interrupted = &run::interrupted;
  return settings;
}

/// Worst outcome first: a signal, the run's time limit, rows that failed.
int exit_code_for(const run::RunSummary& summary) {
  if (summary.error) return complain(*summary.error);
  if (summary.interrupted) return run::interrupt_exit_code();
  if (summary.limit_reached) return base::exit_code::kTimeLimit;
  for (const char* bad : {status::kIncorrect, status::kTimeout, status::kFailed, status::kDeviceLost}) {
    if (summary.count(bad) > 0) return base::exit_code::kRowFailed;
  }
  return base::exit_code::kOk;
}

/// Runs what is left of the plan and prints what there is to print.
int run_sweep(const SweepOptions& options, const plan::Plan& plan, std::span<const plan::Candidate> candidates) {
  const run::HostFacts host = run::host_facts();
  const auto folder = open_folder(options, candidates, host);
  if (!folder) return complain(folder.error());
  for (const std::string& warning : folder->earlier.warnings) fmt::print(stderr, "warning: {}\n", warning);
  const auto file = run::file_sink(folder->rows_path, &reports::to_json_line);
  if (!file) return complain(file.error());

  std::FILE* people = options.outputs.owns_stdout() ? stderr : stdout;
  const int descriptor = ::fileno(people);
  const reports::TableStyle style{use_color(options.outputs.color, descriptor), terminal_width(descriptor)};
  ProgressLine progress(options.outputs.quiet, predicted_s(plan, options.sampling));
  TableSink table(people, style, options.outputs.quiet, progress);
  table.document() = folder->earlier;
  table.document().source = folder->directory;

  const run::InterruptGuard guard;
  table.header();
  const std::array<run::RowSink*, 2> sinks{file->get(), &table};
  const run::RunSummary summary = run::run_plan(plan, candidates, settings_for(options, *folder, host), sinks,
                                                [&](const run::RunProgress& state) { progress.show(state); });
  progress.clear();

  // A resumed point has two rows, of which readers take the later: read them back as readers would.
  const auto document = reports::load_rows(folder->rows_path);
  const reports::Document& shown = document ? *document : table.document();
  if (!options.outputs.quiet && !shown.rows.empty()) {
    fmt::print(people, "{}", reports::table_summary(shown, {options.baseline}, style));
    fmt::print(people, "rows: {}\n", folder->rows_path);
  }
  if (!shown.rows.empty()) {
    if (auto ok = write_reports(options.outputs, shown, options.baseline); !ok) return complain(ok.error());
  }
  return exit_code_for(summary);
}

}  // namespace

int sweep_verb(const SweepOptions& options) {
  const int writers = (options.outputs.csv == "-") + (options.outputs.json == "-") + (options.outputs.md == "-") +
                      (options.outputs.gbench_json == "-");
  if (writers > 1) {
    return complain({base::ErrorKind::kUsage,
                     "only one of --csv, --json, --md, --gbench-json can have standard output "
                     "(-); give the others a file"});
  }
  const auto candidates = find_candidates(options.devices);
  if (!candidates) return complain(candidates.error());
  const auto plan = plan::make_plan(options, *candidates);
  if (!plan) return complain(plan.error());
  return run_sweep(options, *plan, *candidates);
}

}  // namespace attnbench::cli
