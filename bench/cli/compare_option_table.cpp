// The options of compare and noise, and --emit.
#include <algorithm>
#include <string>

#include "bench/cli/option_values.hpp"
#include "bench/cli/shown.hpp"
#include "reports/compare.hpp"
#include "reports/emit.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using S = SweepOptions;
using verb::kCompare;
using verb::kNoise;

constexpr std::string_view kGate = "Gate";
constexpr std::string_view kOutput = "Output";

Result<void> gates(S& o, const Setting& setting) {
  const auto items = split_items(setting.value);
  if (!items) return fail(ErrorKind::kUsage, plan::show(items.error(), setting.source, setting.value));
  o.comparing.gates.clear();
  for (const Item& item : *items) {
    if (auto gate = reports::parse_gate(item.text); !gate) {
      return fail(ErrorKind::kUsage, fmt::format("{} {}: {}", setting.source, item.text, gate.error().message));
    }
    o.comparing.gates.emplace_back(item.text);
  }
  return {};
}

Result<void> allowed(S& o, const Setting& setting) {
  const auto items = split_items(setting.value);
  if (!items) return fail(ErrorKind::kUsage, plan::show(items.error(), setting.source, setting.value));
  std::vector<std::string_view> known(reports::set_up_columns().begin(), reports::set_up_columns().end());
  known.emplace_back("all");
  o.comparing.allowed.clear();
  for (const Item& item : *items) {
    if (std::find(known.begin(), known.end(), item.text) == known.end()) {
      return fail(ErrorKind::kUsage, fmt::format("{}: \"{}\" is not a column of the set-up{}", setting.source,
                                                 item.text, base::did_you_mean(item.text, known)));
    }
    o.comparing.allowed.emplace_back(item.text);
  }
  return {};
}

Result<void> alpha(S& o, const Setting& setting) {
  const std::optional<double> value = base::parse_number(setting.value);
  if (!value || *value <= 0 || *value >= 1) {
    return fail(ErrorKind::kUsage, fmt::format("{}: \"{}\" is not a probability between 0 and 1; try 0.05 or 0.01",
                                               setting.source, setting.value));
  }
  o.comparing.alpha = *value;
  return {};
}

Result<void> floor_of(S& o, const Setting& setting) {
  std::string digits = setting.value;
  if (!digits.empty() && digits.back() == '%') digits.pop_back();
  const std::optional<double> value = base::parse_number(digits);
  if (!value || *value < 0) {
    return fail(ErrorKind::kUsage, fmt::format("{}: \"{}\" is not a percentage of 0 or more; try 2 or 0.5%",
                                               setting.source, setting.value));
  }
  o.comparing.floor_pct = *value;
  return {};
}

/// FORMAT=FILE, several with commas.
Result<void> emit(S& o, const Setting& setting) {
  const auto items = split_items(setting.value);
  if (!items) return fail(ErrorKind::kUsage, plan::show(items.error(), setting.source, setting.value));
  o.outputs.emit.clear();
  for (const Item& item : *items) {
    const std::size_t equals = item.text.find('=');
    const std::string_view format = item.text.substr(0, equals);
    if (std::find(reports::kFormats.begin(), reports::kFormats.end(), format) == reports::kFormats.end()) {
      return fail(ErrorKind::kUsage, fmt::format("{}: there is no format \"{}\"{}", setting.source, format,
                                                 base::did_you_mean(format, reports::kFormats)));
    }
    if (equals == std::string_view::npos || equals + 1 == item.text.size()) {
      return fail(ErrorKind::kUsage, fmt::format("{}: {} has no file; try {}={}.out, or {}=- for standard output",
                                                 setting.source, format, format, format, format));
    }
    o.outputs.emit.push_back({std::string(format), std::string(item.text.substr(equals + 1))});
  }
  return {};
}

Result<void> launches(S& o, const Setting& setting) {
  auto ok = count(o.noise_launches, setting);
  if (ok && o.noise_launches < 2) {
    return fail(ErrorKind::kUsage, setting.source + ": one launch has nothing to differ from; try 3");
  }
  return ok;
}

/// KERNEL:PERCENT or KERNEL:VARIANT:PERCENT.
Result<void> slow_downs(S& o, const Setting& setting) {
  const auto items = split_items(setting.value);
  if (!items) return fail(ErrorKind::kUsage, plan::show(items.error(), setting.source, setting.value));
  o.sampling.slow_downs.clear();
  for (const Item& item : *items) {
    const std::size_t colon = item.text.rfind(':');
    std::string digits(colon == std::string_view::npos ? std::string_view() : item.text.substr(colon + 1));
    if (!digits.empty() && digits.back() == '%') digits.pop_back();
    const std::optional<double> percent = base::parse_number(digits);
    const auto kernel = parse_kernels(item.text.substr(0, colon));
    if (!percent || *percent <= 0 || !kernel || kernel->size() != 1) {
      return fail(ErrorKind::kUsage,
                  fmt::format("{}: \"{}\" is not KERNEL:PERCENT; try flash:10%, or flash:highway:10%", setting.source,
                              item.text));
    }
    o.sampling.slow_downs.push_back({kernel->front(), *percent});
  }
  return {};
}

#define APPLY(expression) [](S& o, const Setting& s) -> Result<void> { return expression; }
#define SHOW(expression) [](const S& o, unsigned) -> std::string { return expression; }

const OptionSpec kTable[] = {
    {"gate", "", "GATE", kGate, "METRIC:+P% where more is worse, METRIC:-P% where less is", kCompare, true, ',', gates,
     SHOW(fmt::format("{}", fmt::join(o.comparing.gates, ",")))},
    {"alpha", "", "NUMBER", kGate, "chance of a false alarm among all rows of a gate", kCompare, false, ',', alpha,
     SHOW(shown::number(o.comparing.alpha))},
    {"noise", "", "FILE", kGate, "noise floors that attnbench noise wrote", kCompare, false, ',',
     APPLY(text(o.comparing.noise_file, s))},
    {"floor", "", "PERCENT", kGate, "noise floor of rows that --noise does not name", kCompare, false, ',', floor_of,
     SHOW(shown::number(o.comparing.floor_pct))},
    {"allow", "", "LIST", kGate, "columns of the set-up that may differ, e.g. driver,compiler; or all", kCompare, true,
     ',', allowed},
    {"strict", "", "", kGate, "exit with 1 also for inconclusive, added and removed rows", kCompare, false, ',',
     APPLY(toggle(o.comparing.strict, s))},
    {"self-test", "", "", kGate, "plant changes into BASE, or into made-up rows, and see whether the gate trips",
     kCompare, false, ',', APPLY(toggle(o.comparing.self_test, s))},
    {"slow-down", "", "RULE", "Sampling",
     "make a kernel slower on purpose, e.g. flash:10%, to see a gate trip; not on CUDA", verb::kSweep, true, ',',
     slow_downs},
    {"launches", "", "N", "Noise", "launches of the whole plan, one after the other", kNoise, false, ',', launches,
     SHOW(std::to_string(o.noise_launches))},
    {"write", "", "FILE", "Noise", "where the floors go; - is standard output", kNoise, false, ',',
     APPLY(text(o.noise_file, s)), SHOW(o.noise_file)},
    {"emit", "", "FORMAT=FILE", kOutput,
     "for other tools; csv, json, md, gbench, googlecpp, bmf, gha-smaller, gha-bigger, junit, step-summary, nvbench, "
     "hyperfine, codspeed, annotations; of a comparison csv, json, md, junit, step-summary, annotations",
     verb::kSweep | verb::kReport | verb::kVerify | verb::kFsdp | kCompare, true, ',', emit},
};

#undef APPLY
#undef SHOW

}  // namespace

std::span<const OptionSpec> compare_option_table() { return kTable; }

}  // namespace attnbench::cli
