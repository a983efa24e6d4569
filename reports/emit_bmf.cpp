// Bencher Metric Format: benchmarks by name, measures by Bencher's own names and in its units.
#include <fmt/format.h>

#include <cmath>

#include "reports/columns.hpp"
#include "reports/emit.hpp"
#include "reports/named_rows.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::reports {
namespace {

/// One measure, with the bounds that are there.
std::string measure(std::string_view name, double value, const Number& lower, const Number& upper) {
  std::string json = fmt::format("{}: {{\"value\": {}", json_quote(name), number_text(value));
  if (lower && std::isfinite(*lower)) json += fmt::format(", \"lower_value\": {}", number_text(*lower));
  if (upper && std::isfinite(*upper)) json += fmt::format(", \"upper_value\": {}", number_text(*upper));
  return json + "}";
}

Number times(const Number& value, double factor) { return value ? Number(*value * factor) : std::nullopt; }

}  // namespace

std::string emit_bmf(const Document& document, const EmitOptions&) {
  constexpr double kNsPerUs = 1e3;
  constexpr double kFlopsPerTflop = 1e12;
  std::string json = "{";
  const char* separator = "\n";
  for (const auto& [row, name] : timed_rows(document)) {
    if (!std::isfinite(*row->time_us_median * kNsPerUs)) continue;  // near the end of what a double holds
    json += fmt::format("{}  {}: {{\n    {}", separator, json_quote(name),
                        measure("latency", *row->time_us_median * kNsPerUs, times(row->time_us_ci_low, kNsPerUs),
                                times(row->time_us_ci_high, kNsPerUs)));
    if (row->tflops && std::isfinite(*row->tflops * kFlopsPerTflop))
      json += ",\n    " + measure("throughput", *row->tflops * kFlopsPerTflop, {}, {});
    if (row->peak_bytes) {
      json += ",\n    " + measure("peak-memory", static_cast<double>(*row->peak_bytes), {}, {});
    }
    json += "\n  }";
    separator = ",\n";
  }
  return json + "\n}\n";
}

}  // namespace attnbench::reports
