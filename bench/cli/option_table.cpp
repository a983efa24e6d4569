// The table of options, by group, and the small functions that set values.
#include "bench/cli/option_table.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>

#include "bench/base/units.hpp"
#include "bench/cli/option_values.hpp"
#include "bench/cli/words.hpp"
#include "bench/plan/axis.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using plan::AxisLimits;

using S = SweepOptions;

constexpr AxisLimits kLengths{1, std::int64_t{1} << 32, false};
constexpr AxisLimits kSizes{1, std::int64_t{1} << 24, false};
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
  if (!value || *value <= 0) {
    return fail(ErrorKind::kUsage,
                fmt::format("{}: \"{}\" is not a number above 0; try 0.125, or leave it out for 1 / sqrt(head_dim)",
                            setting.source, setting.value));
  }
  options.axes.scale = *value;
  return {};
}

Result<void> seed(S& options, const Setting& setting) {
  const char* const end = setting.value.data() + setting.value.size();
  const auto [stop, error] = std::from_chars(setting.value.data(), end, options.seed);
  if (error == std::errc{} && stop == end) return {};
  return fail(ErrorKind::kUsage, fmt::format("{}: \"{}\" is not a seed; try a whole number from 0 to 2^64 - 1",
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
  options.baseline = choices->front().name;
  return {};
}

constexpr std::string_view kAxes = "Axes (the plan is their product)";
constexpr std::string_view kShape = "Shape of the plan";
constexpr std::string_view kSampling = "Sampling";
constexpr std::string_view kOutput = "Output";

using verb::kFsdp;
using verb::kGbench;
using verb::kList;
using verb::kMeasuring;
using verb::kReport;
using verb::kSweep;
using verb::kVerify;
constexpr unsigned kWriting = kSweep | kReport | kVerify | kFsdp;

#define APPLY(expression) [](S& o, const Setting& s) -> Result<void> { return expression; }

const OptionSpec kTable[] = {
    {"d-model", "", "LIST", kAxes, "heads * head_dim [16,32,64]", kMeasuring, true, ',',
     APPLY(axis(o.axes.d_model, s, kSizes))},
    {"seq-len", "", "LIST", kAxes, "queries, and keys unless --seq-len-k says otherwise; k = 1024 [256,1k,4k]",
     kMeasuring, true, ',', APPLY(axis(o.axes.seq_len, s, kLengths))},
    {"seq-len-k", "", "LIST", kAxes, "keys [as many as queries]", kMeasuring, true, ',',
     APPLY(axis(o.axes.seq_len_k, s, kLengths))},
    {"batch", "", "LIST", kAxes, "sequences [8]", kMeasuring, true, ',', APPLY(axis(o.axes.batch, s, kSizes))},
    {"heads", "", "LIST", kAxes, "query heads [1]", kMeasuring, true, ',', APPLY(axis(o.axes.heads, s, kSizes))},
    {"kv-heads", "", "LIST", kAxes, "key/value heads; must divide heads [as many as heads]", kMeasuring, true, ',',
     APPLY(axis(o.axes.kv_heads, s, kSizes))},
    {"dtype", "", "LIST", kAxes, "fp32, bf16, fp16 [fp32; on CUDA fp32,bf16]", kMeasuring | kVerify, true, ',',
     APPLY(store(o.axes.dtype, parse_dtypes(s.value), s))},
    {"causal", "", "LIST", kAxes, "on, off [on]", kMeasuring, true, ',',
     APPLY(store(o.axes.causal, parse_causal(s.value), s))},
    {"window", "", "LIST", kAxes, "keys visible to the left of the diagonal, or none [none]", kMeasuring, true, ',',
     APPLY(axis(o.axes.window, s, kWindows))},
    {"scale", "", "NUMBER", kAxes, "factor on the scores [1 / sqrt(head_dim)]", kMeasuring, false, ',', scale},
    {"pass", "", "LIST", kAxes, "fwd, bwd, fwd_bwd [fwd,bwd]", kMeasuring, true, ',',
     APPLY(store(o.axes.pass, parse_passes(s.value), s))},
    {"kernels", "kernel", "LIST", kAxes,
     "naive, blas, flash, or NAME:VARIANT (see list kernels) [every kernel of the device]", kMeasuring | kVerify, true,
     ',', APPLY(store(o.axes.kernels, parse_kernels(s.value), s))},
    {"threads", "", "LIST", kAxes, "host threads, CPU only [every processor]", kMeasuring, true, ',', threads},
    {"cache", "", "WORD", kAxes, "cold, hot, both [cold]", kMeasuring, true, ',',
     APPLY(store(o.sampling.cache, parse_cache(s.value), s))},
    {"device", "devices", "LIST", kAxes, "auto, cpu, cuda, cuda:N, mock [auto: cuda if there is one, else cpu]",
     kMeasuring | kVerify | kList, true, ',', devices},

    {"zip", "", "AXES", kShape, "axes that move together, e.g. d_model,heads", kMeasuring, true, ';',
     APPLY(store(o.axes.zip, parse_zip(s.value), s))},
    {"exclude", "", "RULE", kShape, "leave out what matches, e.g. kernel=naive,seq_len=8k:64k", kMeasuring, true, ';',
     APPLY(store(o.axes.exclude, parse_exclude(s.value), s))},
    {"dry-run", "", "", kShape, "print the plan with predicted memory and time, run nothing", kSweep, false, ',',
     APPLY(toggle(o.dry_run, s))},
    {"try-oom", "", "", kShape, "run also what is predicted not to fit", kMeasuring, false, ',',
     APPLY(toggle(o.try_oom, s))},
    {"resume", "", "", kShape, "continue the sweep in --out DIR: skip what it has finished", kSweep, false, ',',
     APPLY(toggle(o.resume, s))},
    {"seed", "", "NUMBER", kShape, "of the inputs [1]", kMeasuring | kFsdp, false, ',', seed},
    {"deterministic", "", "", kShape, "ask kernels for results that repeat bit by bit", kMeasuring, false, ',',
     APPLY(toggle(o.sampling.deterministic, s))},

    {"timing", "", "WORD", kSampling, "auto, wall (CPU), events or graph (CUDA) [auto]", kMeasuring, false, ',',
     APPLY(store(o.sampling.timing, parse_timing(s.value), s))},
    {"min-samples", "", "N", kSampling, "least samples of a row [3]", kSweep, false, ',',
     APPLY(count(o.sampling.samples_min, s))},
    {"max-samples", "", "N", kSampling, "most samples of a row [10000]", kSweep, false, ',',
     APPLY(count(o.sampling.samples_max, s))},
    {"min-time", "", "TIME", kSampling, "least time sampled per row [0.2s]", kSweep, false, ',',
     APPLY(seconds(o.sampling.time_min_s, s, true))},
    {"time-limit", "", "TIME", kSampling, "most time sampled per row [3s]", kSweep, false, ',',
     APPLY(seconds(o.sampling.time_limit_s, s, false))},
    {"max-noise", "", "PERCENT", kSampling, "stop when the median's 95 % interval is within this [1]", kSweep, false,
     ',', APPLY(percent(o.sampling.noise_max_pct, s))},
    {"run-limit", "", "TIME", kSampling, "end the whole run after this, exit 124 [no limit]", kSweep, false, ',',
     APPLY(seconds(o.run_limit_s, s, true))},
    {"thermal", "", "WORD", kSampling, "burst, or sustained: warm the device up before every row [burst]", kSweep,
     false, ',', thermal},

    {"baseline", "", "KERNEL", kOutput, "kernel that speed-ups refer to [naive]", kSweep | kReport, false, ',',
     baseline},
    {"out", "", "DIR", kOutput, "where rows.jsonl goes [attnbench-out/<UTC time>]", kSweep | kVerify | kFsdp, false,
     ',', APPLY(text(o.outputs.out_dir, s))},
    {"csv", "", "FILE", kOutput, "write CSV; - is standard output", kWriting, false, ',',
     APPLY(text(o.outputs.csv, s))},
    {"json", "", "FILE", kOutput, "write JSON; - is standard output", kWriting, false, ',',
     APPLY(text(o.outputs.json, s))},
    {"md", "markdown", "FILE", kOutput, "write Markdown; - is standard output", kWriting, false, ',',
     APPLY(text(o.outputs.md, s))},
    {"gbench-json", "", "FILE", kOutput, "write the JSON of Google Benchmark; - is standard output", kSweep | kReport,
     false, ',', APPLY(text(o.outputs.gbench_json, s))},
    {"quiet", "", "", kOutput, "no table, no progress", kWriting, false, ',', APPLY(toggle(o.outputs.quiet, s))},
    {"color", "", "WHEN", kOutput, "auto, always, never [auto]", kWriting, false, ',', color},
    {"config", "", "FILE", kOutput, "read options from a TOML file: option = value", kWriting | kMeasuring | kList,
     false, ',', nullptr},
};

#undef APPLY

}  // namespace

std::span<const OptionSpec> option_table() {
  static const std::vector<OptionSpec> all = [] {
    const auto first = fsdp_option_table();
    std::vector<OptionSpec> options(first.begin(), first.end());
    options.insert(options.end(), std::begin(kTable), std::end(kTable));
    return options;
  }();
  return all;
}

Result<void> check_together(const SweepOptions& options) {
  const Sampling& sampling = options.sampling;
  if (sampling.samples_min > sampling.samples_max) {
    return fail(ErrorKind::kUsage, fmt::format("--min-samples {} is more than --max-samples {}; try --max-samples {}",
                                               sampling.samples_min, sampling.samples_max, sampling.samples_min));
  }
  if (options.resume && options.outputs.out_dir.empty()) {
    return fail(ErrorKind::kUsage,
                "--resume continues a sweep in --out DIR; say which, e.g. --resume --out attnbench-out/<time>");
  }
  const std::array<std::pair<std::string_view, const std::string*>, 4> writers{
      {{"--csv", &options.outputs.csv},
       {"--json", &options.outputs.json},
       {"--md", &options.outputs.md},
       {"--gbench-json", &options.outputs.gbench_json}}};
  for (std::size_t i = 0; i < writers.size(); ++i) {
    for (std::size_t j = i + 1; j < writers.size(); ++j) {
      if (writers[i].second->empty() || *writers[i].second != *writers[j].second) continue;
      const std::string place = *writers[i].second == "-" ? "standard output" : *writers[i].second;
      return fail(ErrorKind::kUsage, fmt::format("{} and {} both write to {}; give {} a file of its own",
                                                 writers[i].first, writers[j].first, place, writers[j].first));
    }
  }
  return {};
}

}  // namespace attnbench::cli
