// One line per column: name, unit, doc, field. README.md repeats the table; a test keeps the two in step.
#include "reports/columns.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "bench/base/error.hpp"

namespace attnbench::reports {

namespace {

constexpr std::string_view kFlopsDetail =
    "Forward 4 * batch * heads * pairs * head_dim: two products (q k^T and p v), a multiply and an add each. Backward "
    "2.5 times that: five products, the recomputation of q k^T included. fwd_bwd 3.5 times. pairs is the exact number "
    "of visible (query, key) pairs: seq_len * seq_len_k without a mask, the sum over queries of the keys that the "
    "causal mask (aligned bottom-right) and the window leave with one. For seq_len = seq_len_k = S causal pairs are "
    "S * (S + 1) / 2, slightly more than the half that other tools count. Softmax, scaling and masking count nothing.";
constexpr std::string_view kHardwareFlopsDetail =
    "As flops_model with the products that the implementation really runs: a kernel that keeps the probabilities has "
    "four products in its backward (2 times the forward), one that recomputes them has five (2.5 times). A kernel that "
    "also computes masked tiles runs more than is counted here.";
constexpr std::string_view kBytesDetail =
    "Every input read once and every output written once (forward: q, k, v, o, lse; backward: q, k, v, o, lse, dout, "
    "dq, dk, dv, and delta, one fp32 value a query row, written and read). A kernel that materialises the scores adds "
    "its passes over fp32 matrices of batch * heads * seq_len "
    "* seq_len_k elements: 4 forward, 7 backward; masked halves move too. It is a model of the least traffic, not a "
    "reading of a counter.";
constexpr std::string_view kIntervalDetail =
    "Order statistics around the median, free of any assumption on the distribution, at ranks n/2 -+ 0.98 sqrt(n); "
    "needs 6 samples, else absent. The level is nominal: samples follow each other in time and the stopping rule "
    "watches the interval itself, so the real coverage is somewhat below 95 %.";
constexpr std::string_view kPeakDetail =
    "Counted by the device's own allocator: high-water mark of all bytes that the point had allocated at one time, "
    "that is its inputs, outputs, saved values and workspace. Memory of the harness (oracle, flush buffer) is not in "
    "it. Exact and equal in every run, and so what the memory reduction of the report is computed from.";
constexpr std::string_view kErrorDetail =
    "Measured before timing, on the same launch path, against attention in double precision, over o and lse (forward) "
    "or dq, dk, dv (backward). Where checked_rows is less than all, rows were sampled. lse at -inf must match exactly. "
    "Absent where an element is NaN or infinite that should be something else: no error can be computed then.";
constexpr std::string_view kToleranceDetail =
    "The kernel's tolerance for the dtype (fp32 2e-5, bf16 2e-2, fp16 4e-3). Of o, dq, dk and dv it is 16 units in the "
    "last place (fp32) of the largest |lse| where that is more, up to 1e-3: scores are kept in fp32, so the rounding "
    "of a "
    "large logit is an error of its probability. The bound of lse never grows.";
constexpr std::string_view kFlushDetail =
    "Twice the last-level cache; on a processor at least 64 MiB and at most a tenth of the free memory, and note says "
    "so "
    "where that is less than the cache that the system tells of. The pages are touched before the first row is timed.";
constexpr std::string_view kStopDetail =
    "noise: the half width of the median's 95 % interval came within --max-noise. samples: --max-samples were taken. "
    "time_limit: --time-limit was used up, or six samples, the least for an interval, would not fit into it. "
    "out_of_reach: after a third of --time-limit at the least (and --min-time, --min-samples), the rest of it was "
    "projected not to be enough: an interval shrinks as 1 / sqrt(samples), and even a third of the width seen so far "
    "would need more samples than fit; or fewer than 11 will fit, below which the interval goes from the smallest to "
    "the largest sample and can only widen. timeout: launches took ten times --time-limit before there were "
    "--min-samples; no time is given. The limit counts cache flushes, the timeout does not. "
    "interrupted: the user, or --run-limit, ended the run. error: a launch reported an error.";
constexpr std::string_view kStatusDetail =
    "ok: measured and verified. incorrect: the result is wrong, so no time is given. unsupported: the kernel declines "
    "the problem and reason says what it would accept. oom: an allocation failed. oom_predicted: would not fit, so it "
    "was not tried. timeout: fewer samples than the minimum within the limit. failed: the kernel or the device "
    "reported an error. device_lost: the device can not be used any more. interrupted: the user stopped the sweep.";

constexpr std::array kColumns = {
    Column{"schema_version", "", "Version of this list of columns; a reader refuses a higher one.",
           &Row::schema_version},
    Column{"run_id", "", "Names the sweep that wrote the row.", &Row::run_id},
    Column{"key", "", "Stable name of the point, equal in two runs of the same point, unique in a run.", &Row::key},
    Column{"kernel", "", "The word given to --kernels: naive, blas, flash.", &Row::kernel},
    Column{"variant", "", "The implementation that ran, with any conversion it made.", &Row::variant},
    Column{"device", "", "Device as --device takes it: cpu, cuda:0, mock.", &Row::device},
    Column{"device_name", "", "Device as its vendor names it.", &Row::device_name},
    Column{"dtype", "", "Element type of inputs and outputs: fp32, bf16, fp16; sums are in fp32.", &Row::dtype},
    Column{"pass", "", "fwd (o and lse), bwd (dq, dk, dv from the saved o and lse), fwd_bwd (both in turn).",
           &Row::pass},
    Column{"causal", "", "1 when query i sees only keys j <= i + seq_len_k - seq_len, else 0.", &Row::causal},
    Column{"batch", "", "Sequences in one call, B.", &Row::batch},
    Column{"heads", "", "Query heads per sequence, H.", &Row::heads},
    Column{"kv_heads", "", "Key and value heads, Hkv; query head h reads head h / (H / Hkv).", &Row::kv_heads},
    Column{"d_model", "", "Model width, heads * head_dim.", &Row::d_model},
    Column{"head_dim", "", "Width of one head, D.", &Row::head_dim},
    Column{"seq_len", "", "Queries per sequence, Sq.", &Row::seq_len},
    Column{"seq_len_k", "", "Keys per sequence, Sk.", &Row::seq_len_k},
    Column{"window", "", "Keys seen to the left of the diagonal; absent without a sliding window.", &Row::window},
    Column{"scale", "", "Factor on q k^T before the softmax; 1 / sqrt(head_dim) unless asked otherwise.", &Row::scale},
    Column{"threads", "", "Host threads that the kernel could use; absent where a device has no such notion.",
           &Row::threads},
    Column{"cache", "", "cold: flush_bytes were written before each sample to empty the caches; hot: not.",
           &Row::cache},
    Column{"timing", "", "Clock: wall (host, around the call), events, graph (CUDA), declared (mock).", &Row::timing},
    Column{"status", "", "How the point ended; only ok has times.", &Row::status, kStatusDetail},
    Column{"reason", "", "One sentence on why the status is not ok; empty when it is.", &Row::reason},
    Column{"stop_reason", "", "Why sampling ended, e.g. the interval was narrow enough or the time was up.",
           &Row::stop_reason, kStopDetail},
    Column{"samples", "", "Samples taken; none is ever dropped as an outlier.", &Row::samples},
    Column{"time_us_median", "us", "Median time of one launch over the samples; every rate is computed from it.",
           &Row::time_us_median},
    Column{"time_us_ci_low", "us", "Lower end of the nominal 95 % interval of the median.", &Row::time_us_ci_low,
           kIntervalDetail},
    Column{"time_us_ci_high", "us", "Upper end of the nominal 95 % interval of the median.", &Row::time_us_ci_high,
           kIntervalDetail},
    Column{"time_us_mean", "us", "Arithmetic mean of the samples.", &Row::time_us_mean},
    Column{"time_us_min", "us", "The fastest sample, the best seen.", &Row::time_us_min},
    Column{"time_us_max", "us", "The slowest sample, never dropped.", &Row::time_us_max},
    Column{"time_us_q1", "us", "First quartile of the samples.", &Row::time_us_q1},
    Column{"time_us_q3", "us", "Third quartile of the samples.", &Row::time_us_q3},
    Column{"time_us_p95", "us", "95th percentile; absent below 20 samples.", &Row::time_us_p95},
    Column{"time_us_p99", "us", "99th percentile; absent below 100 samples.", &Row::time_us_p99},
    Column{"spread_pct", "%", "Interquartile range over the median: 100 * (q3 - q1) / median.", &Row::spread_pct},
    Column{"outliers_mild", "", "Samples beyond 1.5 interquartile ranges from the quartiles, within 3; kept.",
           &Row::outliers_mild},
    Column{"outliers_severe", "", "Samples beyond 3 interquartile ranges from the quartiles; kept.",
           &Row::outliers_severe},
    Column{"launches_per_sample", "", "Launches timed together in one sample, whose time is divided by it.",
           &Row::launches_per_sample},
    Column{"flush_bytes", "bytes", "Bytes written before each cold sample to empty the caches.", &Row::flush_bytes,
           kFlushDetail},
    Column{"interleaved", "", "Kernels of the point that were sampled in turn, this one included: 1 when alone.",
           &Row::interleaved},
    Column{"launch_bound", "", "1 when the host takes longer to enqueue a launch than the device to run it.",
           &Row::launch_bound},
    Column{"throttled", "",
           "Samples during which the device reported a power or thermal limit; absent where it cannot tell.",
           &Row::throttled},
    Column{"timer_overhead_us", "us", "Time of an empty sample; reported, never subtracted.", &Row::timer_overhead_us},
    Column{"clock_mhz_median", "MHz", "Median core clock during the samples, where it can be read.",
           &Row::clock_mhz_median},
    Column{"flops_model", "FLOP", "Useful operations of the pass, the same for every kernel of a point.",
           &Row::flops_model, kFlopsDetail},
    Column{"flops_hw", "FLOP", "Operations in the products that the implementation runs.", &Row::flops_hw,
           kHardwareFlopsDetail},
    Column{"bytes_model", "bytes", "Least memory traffic of the implementation.", &Row::bytes_model, kBytesDetail},
    Column{"tflops", "TFLOP/s", "flops_model over time_us_median, 1 TFLOP/s = 1e12 per second.", &Row::tflops},
    Column{"gbps", "GB/s", "bytes_model over time_us_median, 1 GB/s = 1e9 bytes per second.", &Row::gbps},
    Column{"intensity", "FLOP/byte", "Arithmetic intensity: flops_model over bytes_model.", &Row::intensity},
    Column{"fma_peak_gflops", "GFLOP/s", "Multiply-add peak measured by a probe in the same run with the same threads.",
           &Row::fma_peak_gflops},
    Column{"fma_pct", "%", "flops_model over time_us_median, as a share of fma_peak_gflops.", &Row::fma_pct},
    Column{"peak_bytes", "bytes", "Most bytes allocated through the device at one time during the point.",
           &Row::peak_bytes, kPeakDetail},
    Column{"peak_rss_bytes", "bytes",
           "Resident memory of the whole process at its highest during the point (CPU, VmHWM).", &Row::peak_rss_bytes},
    Column{"peak_device_bytes", "bytes",
           "Device memory taken at the highest as the driver sees it (CUDA, cudaMemGetInfo).", &Row::peak_device_bytes},
    Column{"predicted_bytes", "bytes", "What peak_bytes was predicted to be before anything was allocated.",
           &Row::predicted_bytes},
    Column{"workspace_bytes", "bytes", "Scratch that the kernel asked for beside inputs and outputs; in peak_bytes.",
           &Row::workspace_bytes},
    Column{"foreign_memory", "",
           "1 when free memory changed for reasons outside this process: distrust peak_device_bytes.",
           &Row::foreign_memory},
    Column{"err_abs_max", "", "Largest absolute error against the double-precision oracle.", &Row::err_abs_max,
           kErrorDetail},
    Column{"err_rel_max", "",
           "Largest error over the largest magnitude of its tensor (absolute where that is under 1).",
           &Row::err_rel_max, kErrorDetail},
    Column{"err_tolerance", "", "Bound that err_rel_max had to keep.", &Row::err_tolerance, kToleranceDetail},
    Column{"err_tensor", "", "Tensor with the largest relative error: o, lse, dq, dk, dv.", &Row::err_tensor},
    Column{"checked_rows", "",
           "Rows that were compared with the oracle; all of them, or a sample where the sequence is long.",
           &Row::checked_rows},
    Column{"command", "", "Command line as typed.", &Row::command},
    Column{"seed", "", "Seed of the random inputs.", &Row::seed},
    Column{"sampling", "", "Rule that samples were taken by, as options of sweep.", &Row::sampling},
    Column{"commit", "", "Commit that the program was built from, with -dirty when files differed.", &Row::commit},
    Column{"version", "", "Version of the program.", &Row::version},
    Column{"time_utc", "", "When the row was finished, UTC, ISO 8601.", &Row::time_utc},
    Column{"host", "", "Name of the machine.", &Row::host},
    Column{"os", "", "Operating system and its version.", &Row::os},
    Column{"cores", "", "Processors that the process could use.", &Row::cores},
    Column{"isa", "", "Best instruction set in use, e.g. AVX2, NEON, sm_90.", &Row::isa},
    Column{"driver", "", "Device driver and its version.", &Row::driver},
    Column{"libraries", "", "Libraries that kernels call, with versions.", &Row::libraries},
    Column{"compiler", "", "Compiler and its version.", &Row::compiler},
    Column{"flags", "", "Build type and compiler flags.", &Row::flags},
    Column{"governor", "", "Frequency governor of the processor, where it can be read.", &Row::governor},
    Column{"fingerprint", "", "Hash of what must be equal for two runs to be comparable.", &Row::fingerprint},
    Column{"note", "", "A sentence on anything unusual, e.g. which clock was fallen back to.", &Row::note},
    Column{"load_avg", "", "Load average of the machine over one minute when the row was finished.", &Row::load_avg},
};

}  // namespace

std::span<const Column> columns() { return kColumns; }

const Column* find_column(std::string_view name) {
  static const auto kByName = [] {
    std::unordered_map<std::string_view, const Column*> map;
    for (const Column& column : kColumns) map.emplace(column.name, &column);
    return map;
  }();
  const auto found = kByName.find(name);
  return found == kByName.end() ? nullptr : found->second;
}

std::size_t index_of(const Column& column) {
  const auto index = static_cast<std::size_t>(&column - kColumns.data());
  ATTNBENCH_ENSURE(index < kColumns.size(), "the column is not one of columns()");
  return index;
}

bool is_absent(const Row& row, const Column& column) {
  return std::visit(
      [&row](auto field) {
        if constexpr (std::is_same_v<decltype(field), Text Row::*>) {
          return (row.*field).empty();
        } else if constexpr (std::is_same_v<decltype(field), Number Row::*>) {
          return !(row.*field).has_value() || !std::isfinite(*(row.*field));
        } else {
          return !(row.*field).has_value();
        }
      },
      column.field);
}

std::string plain_text(const Row& row, const Column& column) {
  if (is_absent(row, column)) return {};
  return std::visit(
      [&row](auto field) -> std::string {
        if constexpr (std::is_same_v<decltype(field), Text Row::*>) {
          return row.*field;
        } else if constexpr (std::is_same_v<decltype(field), Number Row::*>) {
          return number_text(*(row.*field));
        } else {
          return std::to_string(*(row.*field));
        }
      },
      column.field);
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return {};
  const double magnitude = std::fabs(value);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-6 && magnitude < 1e15);
  std::array<char, 40> text;
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value,
                                    fixed ? std::chars_format::fixed : std::chars_format::scientific);
  return {text.data(), result.ptr};
}

}  // namespace attnbench::reports
