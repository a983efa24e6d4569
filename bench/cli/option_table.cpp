// The table of options, by group, and the small functions that set values.
#include "bench/cli/option_table.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include "bench/base/units.hpp"
#include "bench/cli/option_values.hpp"
#include "bench/cli/shown.hpp"
#include "bench/cli/words.hpp"
#include "bench/cli/writers.hpp"
#include "bench/plan/axis.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using plan::AxisLimits;

using S = SweepOptions;

constexpr AxisLimits kLengths{0, std::int64_t{1} << 32, false};  // of 0 queries or keys there is a contract too
constexpr AxisLimits kSizes{1, std::int64_t{1} << 24, false};
constexpr AxisLimits kBatches{0, std::int64_t{1} << 24, false};
constexpr AxisLimits kWindows{0, std::int64_t{1} << 32, true};
constexpr AxisLimits kThreads{1, 4096, false};

Result<void> threads(S& options, const Setting& setting) {
  std::vector<std::int64_t> values;
  if (auto ok = axis(values, setting, kThreads); !ok) return ok;
  options.axes.threads.assign(values.begin(), values.end());
  return {};
}

Result<void> percent(double& target, const Setting& setting) {
  std::string text = setting.value;
  if (!text.empty() && text.back() == '%') text.pop_back();
  const std::optional<double> value = base::parse_number(text);
  if (!value || *value <= 0) {
    return fail(ErrorKind::kUsage,
                fmt::format("{}: \"{}\" is not a percentage above 0; try 1 or 0.5%", setting.source, setting.value));
  }
  target = *value;
  return {};
}

Result<void> scale(S& options, const Setting& setting) {
  const std::optional<double> value = base::parse_number(setting.value);
  // Kernels take it in fp32, where it may neither become 0 or infinite nor lose digits as a subnormal does.
  using Limits = std::numeric_limits<float>;
  if (!value || *value < double{Limits::min()} || *value > double{Limits::max()}) {
    return fail(ErrorKind::kUsage,
                fmt::format("{}: \"{}\" is not a number from {:.2g} to {:.2g}, the normal fp32; try 0.125, or leave it "
                            "out for 1 / sqrt(head_dim)",
                            setting.source, setting.value, Limits::min(), Limits::max()));
  }
  options.axes.scale = *value;
  return {};
}

Result<void> seed(S& options, const Setting& setting) {
  const char* const end = setting.value.data() + setting.value.size();
  const auto [stop, error] = std::from_chars(setting.value.data(), end, options.seed);
  // Rows hold signed integers, as most readers of JSON do.
  if (error == std::errc{} && stop == end && std::in_range<std::int64_t>(options.seed)) return {};
  return fail(ErrorKind::kUsage, fmt::format("{}: \"{}\" is not a seed; try a whole number from 0 to 2^63 - 1",
                                             setting.source, setting.value));
}

Result<void> devices(S& options, const Setting& setting) {
  const auto items = split_items(setting.value);
  if (!items)
    return store(options.devices,
                 tl::expected<std::vector<std::string>, plan::SyntaxError>(tl::unexpect, items.error()), setting);
  options.devices.clear();
  for (const Item& item : *items) options.devices.emplace_back(item.text);
  return {};
}

Result<void> color(S& options, const Setting& setting) {
  static constexpr std::array<std::pair<std::string_view, Color>, 3> kTable{
      {{"auto", Color::kAuto}, {"always", Color::kAlways}, {"never", Color::kNever}}};
  return choose(options.outputs.color, setting, kTable);
}

Result<void> thermal(S& options, const Setting& setting) {
  static constexpr std::array<std::pair<std::string_view, bool>, 2> kTable{{{"burst", false}, {"sustained", true}}};
  return choose(options.sampling.sustained, setting, kTable);
}

Result<void> baseline(S& options, const Setting& setting) {
  const auto choices = parse_kernels(setting.value);
  if (choices && choices->size() != 1) {
    return fail(ErrorKind::kUsage, setting.source + ": one kernel is taken, e.g. naive");
  }
  if (!choices) return store(options.axes.kernels, choices, setting);
  const KernelChoice& choice = choices->front();
  options.baseline = choice.variant.empty() ? choice.name : choice.name + ":" + choice.variant;
  return {};
}

constexpr std::string_view kAxes = "Axes (the plan is their product)";
constexpr std::string_view kShape = "Shape of the plan";
constexpr std::string_view kSamplingGroup = "Sampling";
constexpr std::string_view kOutput = "Output";

using verb::kCompare;
using verb::kFsdp;
using verb::kGbench;
using verb::kList;
using verb::kMeasuring;
using verb::kReport;
using verb::kSweep;
using verb::kVerify;
constexpr unsigned kWriting = kSweep | kReport | kVerify | kFsdp | kCompare;

#define APPLY(expression) [](S& o, const Setting& s) -> Result<void> { return expression; }
#define SHOW(expression) [](const S& o, [[maybe_unused]] unsigned v) -> std::string { return expression; }

const OptionSpec kTable[] = {
    {"d-model", "", "LIST", kAxes, "heads * head_dim", kMeasuring, true, ',', APPLY(axis(o.axes.d_model, s, kSizes)),
     SHOW(shown::axis(o.axes.d_model))},
    {"seq-len", "", "LIST", kAxes, "queries, and keys unless --seq-len-k says otherwise; k = 1024; 0 is a length too",
     kMeasuring, true, ',', APPLY(axis(o.axes.seq_len, s, kLengths)), SHOW(shown::axis(o.axes.seq_len))},
    {"seq-len-k", "", "LIST", kAxes, "keys", kMeasuring, true, ',', APPLY(axis(o.axes.seq_len_k, s, kLengths)),
     SHOW(shown::axis(o.axes.seq_len_k, "as many as queries"))},
    {"batch", "", "LIST", kAxes, "sequences", kMeasuring, true, ',', APPLY(axis(o.axes.batch, s, kBatches)),
     SHOW(shown::axis(o.axes.batch))},
    {"heads", "", "LIST", kAxes, "query heads", kMeasuring, true, ',', APPLY(axis(o.axes.heads, s, kSizes)),
     SHOW(shown::axis(o.axes.heads))},
    {"kv-heads", "", "LIST", kAxes, "key/value heads; must divide heads", kMeasuring, true, ',',
     APPLY(axis(o.axes.kv_heads, s, kSizes)), SHOW(shown::axis(o.axes.kv_heads, "as many as heads"))},
    {"dtype", "", "LIST", kAxes, "fp32, bf16, fp16", kMeasuring | kVerify, true, ',',
     APPLY(store(o.axes.dtype, parse_dtypes(s.value), s)),
     SHOW(v == kVerify ? shown::verify_dtypes(o.axes.dtype) : shown::sweep_dtypes(o.axes.dtype))},
    {"causal", "", "LIST", kAxes, "on, off", kMeasuring, true, ',',
     APPLY(store(o.axes.causal, parse_causal(s.value), s)), SHOW(shown::causal(o.axes.causal))},
    {"window", "", "LIST", kAxes, "keys visible to the left of the diagonal, or none", kMeasuring, true, ',',
     APPLY(axis(o.axes.window, s, kWindows)), SHOW(shown::windows(o.axes.window))},
    {"scale", "", "NUMBER", kAxes, "factor on the scores", kMeasuring, false, ',', scale,
     SHOW(shown::scale(o.axes.scale))},
    {"pass", "", "LIST", kAxes, "fwd, bwd, fwd_bwd", kMeasuring, true, ',',
     APPLY(store(o.axes.pass, parse_passes(s.value), s)), SHOW(shown::passes(o.axes.pass))},
    {"kernels", "kernel", "LIST", kAxes, "naive, blas, flash, or NAME:VARIANT (see list kernels)", kMeasuring | kVerify,
     true, ',', APPLY(store(o.axes.kernels, parse_kernels(s.value), s)), SHOW(shown::kernels(o.axes.kernels))},
    {"threads", "", "LIST", kAxes, "host threads, CPU only", kMeasuring, true, ',', threads,
     SHOW(shown::threads(o.axes.threads))},
    {"cache", "", "WORD", kAxes, "cold, hot, both", kMeasuring, true, ',',
     APPLY(store(o.sampling.cache, parse_cache(s.value), s)), SHOW(shown::caches(o.sampling.cache))},
    {"device", "devices", "LIST", kAxes, "auto, cpu, cuda, cuda:N, mock", kMeasuring | kVerify | kList, true, ',',
     devices, SHOW(shown::devices(o.devices, v == kList))},

    {"zip", "", "AXES", kShape, "axes that move together, e.g. d_model,heads", kMeasuring, true, ';',
     APPLY(store(o.axes.zip, parse_zip(s.value), s))},
    {"exclude", "", "RULE", kShape, "leave out what matches, e.g. kernel=naive,seq_len=8k:64k", kMeasuring, true, ';',
     APPLY(store(o.axes.exclude, parse_exclude(s.value), s))},
    {"dry-run", "", "", kShape, "print the plan with predicted memory and time, run nothing", kSweep | kFsdp, false,
     ',', APPLY(toggle(o.dry_run, s))},
    {"try-oom", "", "", kShape, "run also what is predicted not to fit", kMeasuring | kFsdp, false, ',',
     APPLY(toggle(o.try_oom, s))},
    {"resume", "", "", kShape, "continue the sweep in --out DIR: skip what it has finished", kSweep, false, ',',
     APPLY(toggle(o.resume, s))},
    {"seed", "", "NUMBER", kShape, "of the inputs", kMeasuring | kFsdp, false, ',', seed, SHOW(std::to_string(o.seed))},
    {"deterministic", "", "", kShape, "ask kernels for results that repeat bit by bit", kMeasuring, false, ',',
     APPLY(toggle(o.sampling.deterministic, s))},

    {"timing", "", "WORD", kSamplingGroup, "auto, wall (CPU), events or graph (CUDA), declared (mock)", kMeasuring,
     false, ',', APPLY(store(o.sampling.timing, parse_timing(s.value), s)),
     SHOW(std::string(to_string(o.sampling.timing)))},
    {"min-samples", "", "N", kSamplingGroup, "least samples of a row", verb::kSampling, false, ',',
     APPLY(count(o.sampling.samples_min, s)), SHOW(std::to_string(o.sampling.samples_min))},
    {"max-samples", "", "N", kSamplingGroup, "most samples of a row", verb::kSampling, false, ',',
     APPLY(count(o.sampling.samples_max, s)), SHOW(std::to_string(o.sampling.samples_max))},
    {"min-time", "", "TIME", kSamplingGroup, "least time sampled per row", verb::kSampling, false, ',',
     APPLY(seconds(o.sampling.time_min_s, s, true)), SHOW(shown::seconds(o.sampling.time_min_s))},
    {"time-limit", "", "TIME", kSamplingGroup,
     "most time sampled per row, cache flushes included; the least samples are taken all the same", verb::kSampling,
     false, ',', APPLY(seconds(o.sampling.time_limit_s, s, false)), SHOW(shown::seconds(o.sampling.time_limit_s))},
    {"max-noise", "", "PERCENT", kSamplingGroup, "stop when the median's 95 % interval is within this", verb::kSampling,
     false, ',', APPLY(percent(o.sampling.noise_max_pct, s)), SHOW(shown::number(o.sampling.noise_max_pct))},
    {"run-limit", "", "TIME", kSamplingGroup, "end the whole run after this, exit 124", kSweep, false, ',',
     APPLY(seconds(o.run_limit_s, s, true)), SHOW(shown::run_limit(o.run_limit_s))},
    {"thermal", "", "WORD", kSamplingGroup, "burst, or sustained: 5 s of launches before every row", verb::kSampling,
     false, ',', thermal, SHOW(shown::thermal(o.sampling.sustained))},

    {"baseline", "", "KERNEL", kOutput, "kernel that speed-ups refer to, NAME or NAME:VARIANT", kSweep | kReport, false,
     ',', baseline, SHOW(o.baseline)},
    {"out", "", "DIR", kOutput, "where rows.jsonl goes", kSweep | kVerify | kFsdp | verb::kNoise, false, ',',
     APPLY(text(o.outputs.out_dir, s)), SHOW(shown::out_dir(o.outputs.out_dir, v != kVerify))},
    {"csv", "", "FILE", kOutput, "write CSV; - is standard output", kWriting, false, ',',
     APPLY(text(o.outputs.csv, s))},
    {"json", "", "FILE", kOutput, "write JSON; - is standard output", kWriting, false, ',',
     APPLY(text(o.outputs.json, s))},
    {"md", "markdown", "FILE", kOutput, "write Markdown; - is standard output", kWriting, false, ',',
     APPLY(text(o.outputs.md, s))},
    {"gbench-json", "", "FILE", kOutput, "write the JSON of Google Benchmark; - is standard output", kSweep | kReport,
     false, ',', APPLY(text(o.outputs.gbench_json, s))},
    {"quiet", "", "", kOutput, "no table, no progress", kWriting, false, ',', APPLY(toggle(o.outputs.quiet, s))},
    {"color", "", "WHEN", kOutput, "auto, always, never", kWriting, false, ',', color,
     SHOW(shown::color(o.outputs.color))},
    {"config", "", "FILE", kOutput, "read options from a TOML file: option = value", kWriting | kMeasuring | kList,
     false, ',', nullptr},
};

#undef APPLY
#undef SHOW

}  // namespace

std::span<const OptionSpec> option_table() {
  static const std::vector<OptionSpec> all = [] {
    std::vector<OptionSpec> options;
    for (const auto part : {fsdp_option_table(), compare_option_table(), std::span<const OptionSpec>(kTable)}) {
      options.insert(options.end(), part.begin(), part.end());
    }
    return options;
  }();
  return all;
}

std::string help_of(const OptionSpec& option, unsigned verb) {
  static const SweepOptions kDefaults{};
  if (option.shown == nullptr) return std::string(option.help);
  return fmt::format("{} [{}]", option.help, option.shown(kDefaults, verb));
}

Result<void> check_together(const SweepOptions& options) {
  const Sampling& sampling = options.sampling;
  if (sampling.samples_min > sampling.samples_max) {
    return fail(ErrorKind::kUsage, fmt::format("--min-samples {} is more than --max-samples {}; try --max-samples {}",
                                               sampling.samples_min, sampling.samples_max, sampling.samples_min));
  }
  if (options.resume && options.outputs.out_dir.empty()) {
    return fail(
        ErrorKind::kUsage,
        fmt::format("--resume continues a sweep in --out DIR; say which, e.g. --resume --out {}/<time>", kOutRoot));
  }
  return check_writers(options.outputs, options.outputs.out_dir);
}

}  // namespace attnbench::cli
