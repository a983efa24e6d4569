// Words for values; the counterpart of what option_table.cpp parses.
#include "bench/cli/shown.hpp"

#include <fmt/format.h>

#include "bench/base/units.hpp"
#include "bench/plan/axis.hpp"

namespace attnbench::cli::shown {
namespace {

template <typename Values, typename Word>
std::string joined(const Values& values, Word word) {
  std::string text;
  for (const auto& value : values) {
    if (!text.empty()) text += ',';
    text += word(value);
  }
  return text;
}

}  // namespace

std::string axis(std::span<const std::int64_t> values, std::string_view empty) {
  return values.empty() ? std::string(empty) : plan::format_axis(values);
}

std::string windows(std::span<const std::int64_t> values) {
  return joined(values, [](std::int64_t value) { return value < 0 ? "none" : base::format_count(value); });
}

std::string threads(std::span<const int> values) {
  return values.empty() ? "every processor" : fmt::format("{}", fmt::join(values, ","));
}

std::string dtypes(std::span<const kernels::Dtype> values) {
  return joined(values, [](kernels::Dtype value) { return kernels::to_string(value); });
}

std::string passes(std::span<const kernels::Pass> values) {
  return joined(values, [](kernels::Pass value) { return kernels::to_string(value); });
}

std::string caches(std::span<const kernels::CacheState> values) {
  return joined(values, [](kernels::CacheState value) { return kernels::to_string(value); });
}

std::string causal(const std::vector<bool>& values) {
  return joined(values, [](bool value) { return value ? "on" : "off"; });
}

std::string sweep_dtypes(const std::optional<std::vector<kernels::Dtype>>& values) {
  if (values) return dtypes(*values);
  return fmt::format("{}; on CUDA {}", dtypes(cli::sweep_dtypes(kernels::DeviceKind::kCpu)),
                     dtypes(cli::sweep_dtypes(kernels::DeviceKind::kCuda)));
}

std::string verify_dtypes(const std::optional<std::vector<kernels::Dtype>>& values) {
  return dtypes(values.value_or(cli::verify_dtypes()));
}

std::string kernels(const std::vector<KernelChoice>& values) {
  if (values.empty()) return fmt::format("every kernel there is; of mock {}", fmt::join(kMockKernels, ","));
  return joined(values, [](const KernelChoice& choice) {
    return choice.variant.empty() ? choice.name : choice.name + ":" + choice.variant;
  });
}

std::string devices(const std::vector<std::string>& values, bool listing) {
  const std::string text = fmt::format("{}", fmt::join(values, ","));
  if (text != "auto") return text;
  return text + (listing ? ": cpu, and every cuda there is" : ": cuda if there is one, else cpu");
}

std::string scale(std::optional<double> value) { return value ? number(*value) : "1 / sqrt(head_dim)"; }

std::string seconds(double value) { return fmt::format("{}s", value); }

std::string run_limit(double value) { return value > 0 ? seconds(value) : "no limit"; }

std::string number(double value) { return fmt::format("{}", value); }

std::string thermal(bool sustained) { return sustained ? "sustained" : "burst"; }

std::string sampling(const Sampling& value) {
  std::string text = fmt::format(
      "--timing {} --min-samples {} --max-samples {} --min-time {} --time-limit {} --max-noise {} --thermal {}",
      to_string(value.timing), value.samples_min, value.samples_max, seconds(value.time_min_s),
      seconds(value.time_limit_s), number(value.noise_max_pct), thermal(value.sustained));
  std::string rules;
  for (const SlowDown& rule : value.slow_downs) {
    const std::string kernel =
        rule.kernel.variant.empty() ? rule.kernel.name : rule.kernel.name + ":" + rule.kernel.variant;
    rules += fmt::format("{}{}:{}%", rules.empty() ? "" : ",", kernel, number(rule.percent));
  }
  if (!rules.empty()) text += " --slow-down " + rules;
  return text;
}

std::string color(Color value) {
  switch (value) {
    case Color::kAuto:
      return "auto";
    case Color::kAlways:
      return "always";
    case Color::kNever:
      return "never";
  }
  return "?";
}

std::string out_dir(const std::string& value, bool kept_unasked) {
  if (!value.empty()) return value;
  return kept_unasked ? fmt::format("{}/<UTC time>", kOutRoot) : "nowhere";
}

}  // namespace attnbench::cli::shown
