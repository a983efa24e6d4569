// One measured (or refused) point: plain data, copyable, comparable. Everything a report or a comparison may need.
//
// Conventions: an absent number is an empty optional, an absent text an empty string; never 0, -1 or NaN.
// A field's name is its CSV header and JSON key; the unit stands in the name. The list of columns is columns.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnbench::reports {

/// The words of the `status` column.
namespace status {
inline constexpr const char* kOk = "ok";
inline constexpr const char* kIncorrect = "incorrect";         // the check against the oracle failed: no time is given
inline constexpr const char* kUnsupported = "unsupported";     // the kernel declines, reason says what it would accept
inline constexpr const char* kOom = "oom";                     // an allocation failed
inline constexpr const char* kOomPredicted = "oom_predicted";  // would not fit, so it was not tried
inline constexpr const char* kTimeout = "timeout";             // fewer samples than the minimum within the time limit
inline constexpr const char* kFailed = "failed";               // the kernel or the device reported an error
inline constexpr const char* kDeviceLost = "device_lost";      // the device can not be used any more in this run
inline constexpr const char* kInterrupted = "interrupted";     // the user stopped the sweep during this point

/// Whether it makes a run end with exit code 3: something went wrong, rather than being declined or stopped.
constexpr bool is_failure(std::string_view word) {
  return word == kIncorrect || word == kTimeout || word == kFailed || word == kDeviceLost;
}
}  // namespace status

using Text = std::string;
using Number = std::optional<double>;
using Integer = std::optional<std::int64_t>;

struct Row {
  // Identity: equal keys name the same point in two runs.
  Integer schema_version = 1;
  Text run_id;  // of the sweep that wrote the row
  Text key;     // e.g. flash/fwd/fp32/causal/b8_h1_kv1_d64_s4096_sk4096/cold/t2/cpu
  Text kernel, variant, device, device_name;
  Text dtype, pass;
  Integer causal, batch, heads, kv_heads, d_model, head_dim, seq_len, seq_len_k, window;
  Number scale;
  Integer threads;
  Text cache, timing;

  // Outcome.
  Text status, reason, stop_reason;
  Integer samples;
  Number time_us_median, time_us_ci_low, time_us_ci_high, time_us_mean, time_us_min, time_us_max;
  Number time_us_q1, time_us_q3, time_us_p95, time_us_p99;
  Number spread_pct;  // interquartile range over the median
  Integer outliers_mild, outliers_severe;
  Integer launches_per_sample, flush_bytes, interleaved, launch_bound, throttled;
  Number timer_overhead_us, clock_mhz_median;

  // Work and rates.
  Number flops_model, flops_hw, bytes_model, tflops, gbps, intensity;
  Number fma_peak_gflops, fma_pct;

  // Memory.
  Integer peak_bytes, peak_rss_bytes, peak_device_bytes, predicted_bytes, workspace_bytes, foreign_memory;

  // Training: rows of the fsdp verb alone. Times are of the step of the slowest rank, medians over steps.
  Text strategy, model, transport, link, reduce_dtype;
  Integer world_size, prefetch, micro_batches, checkpoint, parameters, emulated, time_shared;
  Number tokens_per_s, scaling_pct, loss, gemm_peak_gflops, gemm_pct;
  Number first_step_us, forward_us, backward_us, optimizer_us, pack_us, exchange_us, communication_us, skew_us;
  Number exposed_us, exposed_forward_gather_us, exposed_backward_gather_us, exposed_reduce_us;
  Number first_gather_us, last_reduce_us;
  Number gather_bytes, gather_us, gather_algbw_gbps, gather_busbw_gbps;
  Number reduce_bytes, reduce_us, reduce_algbw_gbps, reduce_busbw_gbps;
  Integer memory_weights_bytes, memory_optimizer_bytes, memory_gradient_shard_bytes, memory_gathered_bytes;
  Integer memory_gradients_bytes, memory_communication_bytes, memory_activations_bytes, rank_rss_bytes;

  // Correctness.
  Number err_abs_max, err_rel_max, err_tolerance;
  Text err_tensor;  // where the largest relative error is: o, lse, dq, dk, dv
  Integer checked_rows;

  // Provenance.
  Text command;
  Integer seed;
  Text sampling;
  Text commit, version, time_utc, host, os;
  Integer cores;
  Text isa, driver, libraries, compiler, flags, governor;
  Number power_limit_w, clock_max_mhz;
  Text fingerprint, note;
  Number load_avg;

  // Kept so that a comparison can be redone; in rows.jsonl only.
  std::vector<double> sample_times_us;

  bool operator==(const Row&) const = default;
};

/// What readers of rows work on: the rows of one run directory or file, in order, latest of equal keys.
struct Document {
  std::string source;  // path it was loaded from
  std::vector<Row> rows;
  std::vector<std::string> warnings;
};

}  // namespace attnbench::reports
