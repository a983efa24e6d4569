// What a person who opens the page of a CI run wants to see first.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "reports/emit.hpp"
#include "reports/format.hpp"
#include "reports/markdown.hpp"
#include "reports/named_rows.hpp"

namespace attnbench::reports {
namespace {

/// Rows that are shown; with kMostCells each a page stays under half of the 1 MiB that a step may write.
constexpr std::size_t kMostRows = 200;
constexpr std::size_t kMostCells = 300;

std::string cell(const std::string& text) { return markdown::cell(fitted(text, kMostCells)); }

std::string time_of(const Row& row) { return row.time_us_median ? time_text(*row.time_us_median) : ""; }

/// Rows that went wrong before those that were declined, those before the rest; the slowest first.
int rank_of(const Row& row) {
  if (is_timed(row)) return 2;
  const bool wrong = row.status == status::kIncorrect || row.status == status::kFailed ||
                     row.status == status::kTimeout || row.status == status::kDeviceLost;
  return wrong ? 0 : 1;
}

}  // namespace

std::string emit_step_summary(const Document& document, const EmitOptions&) {
  std::map<std::string, std::size_t> counts;
  for (const Row& row : document.rows) ++counts[row.status];
  std::string title;
  for (const auto& [word, count] : counts) title += fmt::format("{}{} {}", title.empty() ? "" : ", ", count, word);
  std::vector<NamedRow> rows = named_rows(document);
  std::stable_sort(rows.begin(), rows.end(), [](const NamedRow& a, const NamedRow& b) {
    const int first = rank_of(*a.row);
    const int second = rank_of(*b.row);
    if (first != second) return first < second;
    return a.row->time_us_median.value_or(0) > b.row->time_us_median.value_or(0);
  });
  std::string text = fmt::format("## attnbench: {}\n\n", cell(title.empty() ? "no rows" : title));
  text += markdown::head({"row", "status", "time", "± %", "rate", "peak memory", "reason"},
                         {false, false, true, true, true, true, false});
  for (std::size_t i = 0; i < std::min(rows.size(), kMostRows); ++i) {
    const Row& row = *rows[i].row;
    const Number half = ci_half_width_pct(row);
    text += markdown::line_of({cell(rows[i].name), cell(row.status), cell(time_of(row)),
                               half ? fmt::format("{:.1f}", *half) : markdown::kAbsent,
                               row.tflops ? rate_text(*row.tflops) : markdown::kAbsent,
                               row.peak_bytes ? bytes_text(static_cast<double>(*row.peak_bytes)) : markdown::kAbsent,
                               cell(row.reason)});
  }
  if (rows.size() > kMostRows) text += fmt::format("\n{} more rows are not shown.\n", rows.size() - kMostRows);
  return text + "\n";
}

}  // namespace attnbench::reports
