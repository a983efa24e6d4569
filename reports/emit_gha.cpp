// github-action-benchmark's own arrays. One direction a file, since the action knows one a file.
#include <fmt/format.h>

#include <cmath>

#include "reports/columns.hpp"
#include "reports/emit.hpp"
#include "reports/format.hpp"
#include "reports/named_rows.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::reports {
namespace {

/// Entries of one array; names hold the metric, for the action finds an entry by its name alone.
class Entries {
 public:
  void add(const NamedRow& named, std::string_view metric, std::string_view unit, const Number& value,
           const Number& half_width = {}) {
    if (!value || !std::isfinite(*value)) return;  // a null would be taken for 0
    json_ += fmt::format("{}  {{\"name\": {}, \"unit\": {}, \"value\": {}", json_.empty() ? "\n" : ",\n",
                         json_quote(fmt::format("{} {}", named.name, metric)), json_quote(unit), number_text(*value));
    if (half_width) json_ += fmt::format(", \"range\": \"± {}\"", number_text(*half_width));
    const std::string variant = kernel_text(*named.row);
    json_ += fmt::format(", \"extra\": {}}}", json_quote(variant));
  }

  std::string array() const { return "[" + json_ + "\n]\n"; }

 private:
  std::string json_;
};

}  // namespace

std::string emit_gha_smaller(const Document& document, const EmitOptions&) {
  Entries entries;
  for (const NamedRow& named : timed_rows(document)) {
    const Row& row = *named.row;
    Number half_width;
    if (row.time_us_ci_low && row.time_us_ci_high) half_width = (*row.time_us_ci_high - *row.time_us_ci_low) / 2;
    entries.add(named, "time", "us", row.time_us_median, half_width);
    entries.add(named, "peak memory", "bytes",
                row.peak_bytes ? Number(static_cast<double>(*row.peak_bytes)) : std::nullopt);
  }
  return entries.array();
}

std::string emit_gha_bigger(const Document& document, const EmitOptions&) {
  Entries entries;
  for (const NamedRow& named : timed_rows(document)) {
    entries.add(named, "compute", "TFLOP/s", named.row->tflops);
    entries.add(named, "traffic", "GB/s", named.row->gbps);
  }
  return entries.array();
}

}  // namespace attnbench::reports
