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
constexpr std::string_view kRssDetail =
    "Read in an untimed pass of the kernel. Libraries, inputs, the flush buffer of a sweep with cold rows "
    "(flush_bytes) "
    "and what kernels of the same point hold already are in it, so that it says what a run needs; for what a kernel "
    "needs see peak_bytes.";
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

constexpr std::string_view kExposedDetail =
    "Measured on the thread that computes, around each wait: for weights in the forward, for weights in the backward, "
    "for a gradient slot or the reductions at the end. The wait for the very first gather and for the very last "
    "reduction have columns of their own: nothing can run beside them. Against communication_us it says how much of "
    "the communication was hidden; waiting for a rank that is behind (skew_us) is in it too.";
constexpr std::string_view kRankMemoryDetail =
    "All memory of a rank is one arena, allocated before the first step; peak_bytes is its size and predicted_bytes "
    "what the formula of fsdp/README.md says, which is the same to the byte. Gathered weights are bounded by the "
    "prefetch depth: prefetch + 1 layers.";

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
           "Resident memory of the whole process at its highest during the point (CPU, VmHWM).", &Row::peak_rss_bytes,
           kRssDetail},
    Column{"peak_device_bytes", "bytes",
           "Device memory taken at the highest as the driver sees it (CUDA, cudaMemGetInfo).", &Row::peak_device_bytes},
    Column{"predicted_bytes", "bytes", "What peak_bytes was predicted to be before anything was allocated.",
           &Row::predicted_bytes},
    Column{"workspace_bytes", "bytes", "Scratch that the kernel asked for beside inputs and outputs; in peak_bytes.",
           &Row::workspace_bytes},
    Column{"foreign_memory", "",
           "1 when free memory changed for reasons outside this process: distrust peak_device_bytes.",
           &Row::foreign_memory},
    Column{"strategy", "",
           "fsdp: weights, gradients and optimizer state are sharded; shard_grad_op: weights stay gathered through a "
           "step; ddp: not sharded.",
           &Row::strategy},
    Column{"model", "",
           "Name of the model that is trained, with the dimensions that were asked for in place of its own.",
           &Row::model},
    Column{"transport", "", "What collectives run on: none (one rank), local (threads), mpi (processes), nccl (GPUs).",
           &Row::transport},
    Column{"link", "", "Latency and bandwidth of the emulated link as typed; empty where the transport runs as it is.",
           &Row::link},
    Column{"reduce_dtype", "", "Element type in which gradients travel between ranks; they are added in fp32.",
           &Row::reduce_dtype},
    Column{"world_size", "", "Ranks that train together.", &Row::world_size},
    Column{"prefetch", "", "Layers that gathers run ahead of the compute; 0 means that nothing overlaps.",
           &Row::prefetch},
    Column{"micro_batches", "", "Forward and backward passes of one step.", &Row::micro_batches},
    Column{"checkpoint", "", "1 when blocks keep only their inputs and repeat their forward in the backward, else 0.",
           &Row::checkpoint},
    Column{"parameters", "", "Elements of the model, each value once, without padding.", &Row::parameters},
    Column{"emulated", "",
           "1 when a link emulator stretches every collective, so times are not those of this machine's transport.",
           &Row::emulated},
    Column{"time_shared", "",
           "1 when there are more ranks than processors, so that ranks compute in turn and times do not scale.",
           &Row::time_shared},
    Column{"tokens_per_s", "", "Tokens of all ranks in one step over time_us_median.", &Row::tokens_per_s},
    Column{"scaling_pct", "%",
           "tokens_per_s per rank over that of the smallest world size in the run with the same other settings.",
           &Row::scaling_pct},
    Column{"loss", "", "Mean loss over all ranks at the last step.", &Row::loss},
    Column{"gemm_peak_gflops", "GFLOP/s",
           "Matrix products per second that this machine's library reached in the same run on all processors.",
           &Row::gemm_peak_gflops},
    Column{"gemm_pct", "%", "flops_model over time_us_median, as a share of gemm_peak_gflops.", &Row::gemm_pct},
    Column{"first_step_us", "us", "Time of the very first step, before warm-up; not in the samples.",
           &Row::first_step_us},
    Column{"forward_us", "us", "Time inside the forward of layers.", &Row::forward_us},
    Column{"backward_us", "us", "Time inside the backward of layers.", &Row::backward_us},
    Column{"optimizer_us", "us", "Time of norm, clipping and update of the weights that the rank keeps.",
           &Row::optimizer_us},
    Column{"pack_us", "us", "Time of casts into and out of what travels between ranks, on the thread that computes.",
           &Row::pack_us},
    Column{"exchange_us", "us", "Time that the rank waited for loss and norm of the others at the end of a step.",
           &Row::exchange_us},
    Column{"communication_us", "us",
           "Sum of the times of all collectives of a step, from the moment that all ranks had joined, mean over ranks.",
           &Row::communication_us},
    Column{"skew_us", "us",
           "Sum of the times that collectives of a step waited for ranks that joined later, mean over ranks; not in "
           "communication_us.",
           &Row::skew_us},
    Column{"exposed_us", "us",
           "Time that the compute stood still for communication that could have been hidden; the ends of a step are "
           "not in it.",
           &Row::exposed_us, kExposedDetail},
    Column{"exposed_forward_gather_us", "us", "Part of exposed_us that waited for weights in the forward.",
           &Row::exposed_forward_gather_us},
    Column{"exposed_backward_gather_us", "us", "Part of exposed_us that waited for weights in the backward.",
           &Row::exposed_backward_gather_us},
    Column{"exposed_reduce_us", "us", "Part of exposed_us that waited for reductions of gradients.",
           &Row::exposed_reduce_us},
    Column{"first_gather_us", "us",
           "Time that the first layer waited for its weights: nothing runs before it, so it cannot hide.",
           &Row::first_gather_us},
    Column{"last_reduce_us", "us",
           "Time that the optimizer waited for the last reduction: nothing runs beside it, so it cannot hide.",
           &Row::last_reduce_us},
    Column{"gather_bytes", "bytes", "Bytes of the whole buffer of one all-gather, mean over those of a step.",
           &Row::gather_bytes},
    Column{"gather_us", "us",
           "Time of one all-gather from the moment that all ranks had joined, mean over those of a step and ranks.",
           &Row::gather_us},
    Column{"gather_algbw_gbps", "GB/s",
           "gather_bytes over gather_us, 1 GB/s = 1e9 bytes per second; absent on one rank.", &Row::gather_algbw_gbps},
    Column{"gather_busbw_gbps", "GB/s", "gather_algbw_gbps times (N - 1) / N on N ranks: what each link carries.",
           &Row::gather_busbw_gbps},
    Column{"reduce_bytes", "bytes",
           "Bytes of the whole buffer of one reduce-scatter (ddp: all-reduce), mean over those of a step.",
           &Row::reduce_bytes},
    Column{"reduce_us", "us", "Time of one reduce-scatter (ddp: all-reduce), mean over those of a step and ranks.",
           &Row::reduce_us},
    Column{"reduce_algbw_gbps", "GB/s", "reduce_bytes over reduce_us; absent on one rank.", &Row::reduce_algbw_gbps},
    Column{"reduce_busbw_gbps", "GB/s", "reduce_algbw_gbps times (N - 1) / N on N ranks, twice that for an all-reduce.",
           &Row::reduce_busbw_gbps},
    Column{"memory_weights_bytes", "bytes", "fp32 weights that one rank keeps.", &Row::memory_weights_bytes},
    Column{"memory_optimizer_bytes", "bytes", "Moments of the optimizer that one rank keeps.",
           &Row::memory_optimizer_bytes},
    Column{"memory_gradient_shard_bytes", "bytes", "fp32 gradients that one rank keeps for its update.",
           &Row::memory_gradient_shard_bytes},
    Column{"memory_gathered_bytes", "bytes", "Whole weights that one rank holds while layers use them.",
           &Row::memory_gathered_bytes, kRankMemoryDetail},
    Column{"memory_gradients_bytes", "bytes", "Whole gradients that one rank holds until they are reduced.",
           &Row::memory_gradients_bytes},
    Column{"memory_communication_bytes", "bytes",
           "Buffers of one rank for what travels: gradients rounded for it, and parts that arrive.",
           &Row::memory_communication_bytes},
    Column{"memory_activations_bytes", "bytes",
           "Activations and their gradients, what layers save and share as workspace, tokens.",
           &Row::memory_activations_bytes},
    Column{"rank_rss_bytes", "bytes",
           "Growth of resident memory per rank from before the engine was made to the last step.",
           &Row::rank_rss_bytes},
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
    Column{"power_limit_w", "W", "Enforced power limit of the device, where NVML tells.", &Row::power_limit_w},
    Column{"clock_max_mhz", "MHz", "Highest core clock that the device may take, where NVML tells.",
           &Row::clock_max_mhz},
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
