// Text of an option to its value, for every kind of value that more than one option has.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/base/suggest.hpp"
#include "bench/base/units.hpp"
#include "bench/cli/option_table.hpp"
#include "bench/cli/words.hpp"
#include "bench/plan/axis.hpp"

namespace attnbench::cli {

inline constexpr plan::AxisLimits kCounts{1, 100'000'000, false};

/// Stores a parsed value, or turns the mistake into lines with a caret.
template <typename Target, typename Parsed>
base::Result<void> store(Target& target, Parsed parsed, const Setting& setting) {
  if (!parsed) return base::fail(base::ErrorKind::kUsage, plan::show(parsed.error(), setting.source, setting.value));
  target = std::move(*parsed);
  return {};
}

inline base::Result<void> axis(std::vector<std::int64_t>& target, const Setting& setting,
                               const plan::AxisLimits& limits) {
  return store(target, plan::parse_axis(setting.value, limits), setting);
}

inline base::Result<void> count(int& target, const Setting& setting) {
  std::vector<std::int64_t> values;
  if (auto ok = axis(values, setting, kCounts); !ok) return ok;
  if (values.size() != 1) {
    return base::fail(base::ErrorKind::kUsage,
                      fmt::format("{}: one number is taken, not \"{}\"", setting.source, setting.value));
  }
  target = static_cast<int>(values.front());
  return {};
}

inline base::Result<void> seconds(double& target, const Setting& setting, bool zero_allowed) {
  const std::optional<double> value = base::parse_seconds(setting.value);
  if (!value || (*value == 0 && !zero_allowed)) {
    return base::fail(base::ErrorKind::kUsage, fmt::format("{}: \"{}\" is not a time; try 3, 0.5, 500ms or 2min",
                                                           setting.source, setting.value));
  }
  target = *value;
  return {};
}

inline base::Result<void> text(std::string& target, const Setting& setting) {
  if (setting.value.empty()) return base::fail(base::ErrorKind::kUsage, setting.source + ": the value is empty");
  target = setting.value;
  return {};
}

inline base::Result<void> toggle(bool& target, const Setting& setting) {
  return store(target, parse_switch(setting.value), setting);
}

/// One word of a short table; the nearest is named otherwise.
template <typename T, std::size_t N>
base::Result<void> choose(T& target, const Setting& setting,
                          const std::array<std::pair<std::string_view, T>, N>& table) {
  std::array<std::string_view, N> known{};
  for (std::size_t i = 0; i < N; ++i) {
    if (table[i].first == setting.value) {
      target = table[i].second;
      return {};
    }
    known[i] = table[i].first;
  }
  return base::fail(base::ErrorKind::kUsage, fmt::format("{}: \"{}\" is not known{}", setting.source, setting.value,
                                                         base::did_you_mean(setting.value, known)));
}

}  // namespace attnbench::cli
