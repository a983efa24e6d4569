// `attnbench sweep`: options to a plan, the plan to rows, rows to a folder, a table and reports.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "bench/cli/devices.hpp"
#include "bench/cli/print.hpp"
#include "bench/cli/shown.hpp"
#include "bench/cli/sweep_files.hpp"
#include "bench/cli/sweep_output.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/plan/predict.hpp"
#include "bench/run/interrupt.hpp"
#include "bench/run/runner.hpp"
#include "bench/run/slow_down.hpp"
#include "kernels/catalog.hpp"
#include "kernels/device/cpu_device.hpp"
#include "kernels/lab/cpu/fma_peak.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::cli {
namespace {

namespace status = reports::status;

constexpr double kPeakSeconds = 0.5;

int complain(const base::Error& error) {
  print_to(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

std::optional<double> peak_gflops(kernels::Device& device) {
  if (device.facts().kind != kernels::DeviceKind::kCpu) return std::nullopt;
  return kernels::measure_fma_peak(static_cast<kernels::CpuDevice&>(device).pool(), kPeakSeconds).gflops;
}

run::RunSettings settings_for(const SweepOptions& options, const SweepFolder& folder, const run::HostFacts& host) {
  run::RunSettings settings;
  settings.sampling = options.sampling;
  settings.run_limit_s = options.run_limit_s;
  settings.provenance = {run::utc_now() + "-" + std::to_string(::getpid()), options.command, options.seed, host,
                         shown::sampling(options.sampling)};
  settings.finished = folder.finished;
  settings.resume_command = fmt::format("the same command with --resume --out {}", folder.directory);
  settings.open = &kernels::open_device;
  settings.peak_gflops = &peak_gflops;
  settings.interrupted = &run::interrupted;
  return settings;
}

/// Worst outcome first: a signal, the run's time limit, rows that failed.
int exit_code_for(const run::RunSummary& summary) {
  if (summary.error) return complain(*summary.error);
  if (summary.interrupted) return run::interrupt_exit_code();
  if (summary.limit_reached) return base::exit_code::kTimeLimit;
  return summary.failures() > 0 ? base::exit_code::kRowFailed : base::exit_code::kOk;
}

/// Runs what is left of the plan and prints what there is to print.
int run_sweep(const SweepOptions& options, const plan::Plan& plan, std::span<const plan::Candidate> candidates) {
  if (auto ok = check_writable(options.outputs); !ok) return complain(ok.error());
  const run::HostFacts host = run::host_facts();
  const auto folder = open_folder(options, candidates, host);
  if (!folder) return complain(folder.error());
  for (const std::string& warning : folder->earlier.warnings) print_to(stderr, "warning: {}\n", warning);

  std::FILE* people = options.outputs.owns_stdout() ? stderr : stdout;
  const reports::TableStyle style = style_for(plan, options.outputs.color, people);
  ProgressLine progress(options.outputs.quiet, plan::predicted_duration(plan, options.sampling).most_s);
  TableSink table(people, style, options.outputs.quiet, progress);
  table.document() = folder->earlier;
  table.document().source = folder->directory;

  const run::InterruptGuard guard;
  table.header();
  const std::array<run::RowSink*, 2> sinks{folder->sink.get(), &table};
  const run::RunSummary summary = run::run_plan(plan, candidates, settings_for(options, *folder, host), sinks,
                                                [&](const run::RunProgress& state) { progress.show(state); });
  progress.clear();

  // A resumed point has two rows, of which readers take the later: read them back as readers would.
  const auto document = reports::load_rows(folder->rows_path);
  const bool no_rows = table.document().rows.empty();
  if (!document && !no_rows) complain(document.error());
  const reports::Document& shown = document ? *document : table.document();
  if (!options.outputs.quiet && !shown.rows.empty()) {
    print_to(people, "{}", reports::table_summary(shown, {options.baseline}, style));
    print_to(people, "rows: {}\n", folder->rows_path);
  }
  if (!shown.rows.empty()) {
    if (auto ok = write_reports(options.outputs, shown, options.baseline); !ok) return complain(ok.error());
  }
  const int code = exit_code_for(summary);
  return code == base::exit_code::kOk && !document && !no_rows ? base::exit_code_of(document.error().kind) : code;
}

}  // namespace

int sweep_verb(const SweepOptions& options) {
  const auto candidates = find_candidates(options.devices);
  if (!candidates) return complain(candidates.error());
  const auto plan = plan::make_plan(options, *candidates);
  if (!plan) return complain(plan.error());
  if (auto ok = run::check_slow_downs(options.sampling.slow_downs, *plan); !ok) return complain(ok.error());
  return run_sweep(options, *plan, *candidates);
}

}  // namespace attnbench::cli
