// Fills the columns of a row.
#include "bench/run/provenance.hpp"

#include <fmt/format.h>

#include "bench/base/version.hpp"
#include "kernels/work.hpp"

namespace attnbench::run {
namespace {

std::string text(std::string_view view) { return std::string(view); }

void add_build(reports::Row& row) {
  const base::BuildInfo& build = base::build_info();
  row.commit = text(build.commit);
  row.version = text(build.version);
  row.compiler = text(build.compiler);
  row.flags = text(build.flags);
}

}  // namespace

reports::Row identity(const plan::Case& c) {
  reports::Row row;
  const kernels::Problem& p = c.problem;
  row.key = c.key;
  row.kernel = c.kernel;
  row.variant = c.variant;
  row.device = c.device;
  row.dtype = text(kernels::to_string(p.dtype));
  row.pass = text(kernels::to_string(c.pass));
  row.causal = p.causal ? 1 : 0;
  row.batch = p.batch;
  row.heads = p.heads;
  row.kv_heads = p.kv_heads;
  row.d_model = c.d_model;
  row.head_dim = p.head_dim;
  row.seq_len = p.seq_q;
  row.seq_len_k = p.seq_k;
  if (p.window_left >= 0) row.window = p.window_left;
  row.scale = static_cast<double>(p.scale);
  if (c.threads > 0) row.threads = c.threads;
  row.cache = text(kernels::to_string(c.cache));
  return row;
}

reports::Row describe(const plan::Case& c, const kernels::DeviceFacts& device, const kernels::KernelInfo* kernel,
                      const Provenance& provenance) {
  reports::Row row = identity(c);
  row.run_id = provenance.run_id;
  row.device_name = device.name;
  if (kernel != nullptr) {
    row.flops_model = kernels::model_flops(c.problem, c.pass);
    row.flops_hw = kernels::hardware_flops(c.problem, c.pass, kernel->materialises);
    row.bytes_model = kernels::model_bytes(c.problem, c.pass, kernel->materialises);
    if (*row.bytes_model > 0) row.intensity = *row.flops_model / *row.bytes_model;
  }
  if (c.predicted_time_us > 0) row.predicted_bytes = static_cast<std::int64_t>(c.predicted_bytes);
  row.command = provenance.command;
  row.seed = static_cast<std::int64_t>(provenance.seed);
  row.sampling = provenance.sampling;
  row.host = provenance.host.host;
  row.os = provenance.host.os;
  row.governor = provenance.host.governor;
  if (device.cores > 0) row.cores = device.cores;
  row.isa = device.isa;
  row.driver = device.driver;
  row.libraries = libraries_text(device);
  row.power_limit_w = device.power_limit_w;
  row.clock_max_mhz = device.clock_max_mhz;
  row.fingerprint = fingerprint(provenance.host, device);
  add_build(row);
  return row;
}

void add_times(reports::Row& row, const measure::Series& series, const kernels::StopwatchInfo& stopwatch) {
  const base::Summary summary = base::summarize(series.times_us);
  row.samples = summary.count;
  row.stop_reason = text(measure::to_string(series.stop));
  row.time_us_median = summary.median;
  row.time_us_mean = summary.mean;
  row.time_us_min = summary.min;
  row.time_us_max = summary.max;
  row.time_us_q1 = summary.q1;
  row.time_us_q3 = summary.q3;
  row.time_us_p95 = summary.p95;
  row.time_us_p99 = summary.p99;
  row.spread_pct = summary.spread_pct;
  if (summary.median_ci) {
    row.time_us_ci_low = summary.median_ci->low;
    row.time_us_ci_high = summary.median_ci->high;
  }
  if (summary.outliers) {
    row.outliers_mild = summary.outliers->mild;
    row.outliers_severe = summary.outliers->severe;
  }
  row.timing = text(kernels::to_string(stopwatch.timing));
  row.launches_per_sample = stopwatch.launches_per_sample;
  row.flush_bytes = static_cast<std::int64_t>(stopwatch.flush_bytes);
  row.timer_overhead_us = stopwatch.overhead_us;
  row.throttled = series.throttled;
  row.clock_mhz_median = base::median(series.clocks_mhz);
  if (stopwatch.launch_us && summary.median) row.launch_bound = *stopwatch.launch_us > *summary.median ? 1 : 0;
  add_note(row, stopwatch.note);
  row.sample_times_us = series.times_us;
  if (!summary.median || !(*summary.median > 0)) return;
  // FLOP per microsecond is 1e-6 TFLOP/s; bytes per microsecond 1e-3 GB/s.
  if (row.flops_model) row.tflops = *row.flops_model / *summary.median * 1e-6;
  if (row.bytes_model) row.gbps = *row.bytes_model / *summary.median * 1e-3;
}

void add_verdict(reports::Row& row, const measure::Verdict& verdict) {
  const measure::TensorError& worst = verdict.worst();
  row.err_abs_max = worst.absolute;
  row.err_rel_max = worst.relative;
  row.err_tolerance = worst.tolerance;
  row.err_tensor = worst.tensor;
  row.checked_rows = verdict.checked_rows;
  add_note(row, verdict.caveat);
}

void add_peak(reports::Row& row, std::optional<double> peak_gflops) {
  if (!peak_gflops) return;
  row.fma_peak_gflops = peak_gflops;
  if (!row.tflops) return;
  row.fma_pct = *row.tflops * 1e5 / *peak_gflops;
  if (*row.fma_pct > 100) {
    add_note(row, fmt::format("{:.1f} % of the measured multiply-add peak: the probe or the row was disturbed",
                              *row.fma_pct));
  }
}

void add_note(reports::Row& row, const std::string& sentence) {
  if (sentence.empty()) return;
  row.note += (row.note.empty() ? "" : "; ") + sentence;
}

void finish(reports::Row& row, const char* status, const std::string& reason) {
  row.status = status;
  row.reason = reason;
  row.time_utc = utc_now();
  row.load_avg = load_average();
}

}  // namespace attnbench::run
