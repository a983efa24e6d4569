// How numbers look to people. fmt is independent of the locale.
#include "reports/format.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace attnbench::reports {

namespace {

struct Unit {
  double size;
  const char* name;
};

/// The largest unit that the value reaches, chosen after rounding so that 999.96 us is 1.00 ms and not 1000 us.
template <std::size_t N>
std::string scaled(double value, const std::array<Unit, N>& units) {
  for (const Unit& unit : units) {
    if (std::fabs(value) >= unit.size * 0.9995) return digits_text(value / unit.size) + " " + unit.name;
  }
  return digits_text(value / units.back().size) + " " + units.back().name;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u; }

}  // namespace

std::string digits_text(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude != 0 && (magnitude < 1e-3 || magnitude >= 1e7)) return fmt::format("{:.2e}", value);
  if (magnitude < 9.995) return fmt::format("{:.2f}", value);
  if (magnitude < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

std::string time_text(double us) { return scaled(us, std::array{Unit{1e6, "s"}, Unit{1e3, "ms"}, Unit{1, "us"}}); }

std::string rate_text(double tflops) {
  return scaled(tflops, std::array{Unit{1, "TFLOP/s"}, Unit{1e-3, "GFLOP/s"}, Unit{1e-6, "MFLOP/s"}});
}

std::string gbps_text(double gbps) { return digits_text(gbps) + " GB/s"; }

std::string bytes_text(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  return scaled(bytes, std::array{Unit{0x1p40, "TiB"}, Unit{0x1p30, "GiB"}, Unit{0x1p20, "MiB"}, Unit{0x1p10, "KiB"}});
}

std::string error_text(double error) { return error == 0 ? "0" : fmt::format("{:.1e}", error); }

std::string ratio_text(double ratio) { return digits_text(ratio) + "x"; }

Number ci_half_width_pct(const Row& row) {
  if (!row.time_us_median || !row.time_us_ci_low || !row.time_us_ci_high || *row.time_us_median <= 0) return {};
  return 50.0 * (*row.time_us_ci_high - *row.time_us_ci_low) / *row.time_us_median;
}

std::string kernel_text(const Row& row) {
  if (row.variant.empty() || row.variant == row.kernel) return row.kernel;
  return row.kernel + ":" + row.variant;
}

std::size_t cell_count(std::string_view text) {
  std::size_t cells = 0;
  for (const char byte : text) cells += is_continuation(byte) ? 0 : 1;
  return cells;
}

std::string fitted(std::string_view text, std::size_t cells) {
  if (cell_count(text) <= cells) return std::string(text);
  if (cells == 0) return {};
  std::size_t taken = 0;
  std::size_t end = 0;
  while (end < text.size() && (is_continuation(text[end]) || taken < cells - 1)) {
    taken += is_continuation(text[end]) ? 0 : 1;
    ++end;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string padded_left(std::string_view text, std::size_t cells) {
  const std::size_t used = cell_count(text);
  return std::string(used < cells ? cells - used : 0, ' ').append(text);
}

std::string padded_right(std::string_view text, std::size_t cells) {
  const std::size_t used = cell_count(text);
  return std::string(text).append(used < cells ? cells - used : 0, ' ');
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char byte : text) {
    const bool control = static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f;
    if (!control) {
      line += byte;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  return line;
}

}  // namespace attnbench::reports
