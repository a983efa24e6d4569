// Formatting and parsing of quantities with units.
#include "bench/base/units.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>

namespace attnbench::base {
namespace {

/// Three significant digits of a number below 1024, without an exponent.
std::string three_digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

}  // namespace

std::string format_bytes(double bytes) {
  static constexpr std::array<const char*, 7> kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  // 1023.5 would round to "1024", which the next unit says better.
  while (bytes >= 1023.5 && unit + 1 < kUnits.size()) {
    bytes /= 1024.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  return three_digits(bytes) + " " + kUnits[unit];
}

std::string format_time_us(double time_us) {
  if (time_us < 999.5) return three_digits(time_us) + " us";
  if (time_us < 999.5e3) return three_digits(time_us * 1e-3) + " ms";
  const double seconds = time_us * 1e-6;
  if (seconds < 119.5) return three_digits(seconds) + " s";
  const double whole = std::round(seconds);
  const double minutes = std::floor(whole / 60.0);
  if (minutes < 120.0) return fmt::format("{:.0f} min {:.0f} s", minutes, whole - 60.0 * minutes);
  return fmt::format("{:.1f} h", seconds / 3600.0);
}

std::string format_count(std::int64_t count) {
  constexpr std::int64_t kKi = 1024;
  constexpr std::int64_t kMi = kKi * kKi;
  if (count != 0 && count % kMi == 0) return fmt::format("{}M", count / kMi);
  if (count != 0 && count % kKi == 0) return fmt::format("{}k", count / kKi);
  return fmt::format("{}", count);
}

std::optional<std::int64_t> count_suffix(std::string_view suffix) {
  if (suffix.empty()) return 1;
  if (suffix == "k" || suffix == "K" || suffix == "Ki" || suffix == "ki") return std::int64_t{1} << 10;
  if (suffix == "M" || suffix == "Mi") return std::int64_t{1} << 20;
  return std::nullopt;
}

std::optional<double> parse_number(std::string_view text) {
  // strtod also takes hexadecimal, "nan" and leading blanks: only plain decimals are let through.
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return std::nullopt;
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<double> parse_seconds(std::string_view text) {
  struct Unit {
    std::string_view suffix;
    double seconds;
  };
  static constexpr std::array<Unit, 4> kUnits{{{"ms", 1e-3}, {"min", 60.0}, {"h", 3600.0}, {"s", 1.0}}};
  double scale = 1.0;
  for (const Unit& unit : kUnits) {
    if (text.size() > unit.suffix.size() && text.substr(text.size() - unit.suffix.size()) == unit.suffix) {
      text.remove_suffix(unit.suffix.size());
      scale = unit.seconds;
      break;
    }
  }
  const std::optional<double> value = parse_number(text);
  if (!value || *value < 0) return std::nullopt;
  return *value * scale;
}

}  // namespace attnbench::base
