// Markdown (GitHub flavour): speed-ups, the full table, provenance.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reports/columns.hpp"
#include "reports/emit.hpp"
#include "reports/format.hpp"
#include "reports/markdown.hpp"
#include "reports/provenance.hpp"
#include "reports/speedup.hpp"
#include "reports/training_table.hpp"

namespace attnbench::reports {

namespace {

using markdown::cell;
using markdown::head;
using markdown::line_of;

template <typename Optional, typename Format>
std::string number_cell(const Optional& value, Format format) {
  return value ? format(static_cast<double>(*value)) : markdown::kAbsent;
}

std::string two_digits(double value) { return fmt::format("{:.2f}", value); }

std::string speedup_section(const Document& document, const std::string& baseline) {
  const std::vector<Speedup> all = speedups(document, baseline);
  std::string text = fmt::format("## Speed-up over {}\n\n", cell(baseline));
  if (all.empty()) return text + "There is no other kernel to compare with it.\n\n";
  std::vector<const Row*> points;
  for (const Speedup& speedup : all) points.push_back(speedup.point);
  AxisSplit axes = split_axes(points);
  // The table is always by width and length, even when there is only one of either.
  for (const char* name : {"seq_len", "d_model"}) {
    const auto place = std::find(axes.fixed.begin(), axes.fixed.end(), find_column(name));
    if (place == axes.fixed.end()) continue;
    axes.varying.insert(axes.varying.begin(), *place);
    axes.fixed.erase(place);
  }
  const bool joint = std::any_of(all.begin(), all.end(), [](const Speedup& s) { return s.fwd_bwd.has_value(); });

  if (!axes.fixed.empty()) text += fmt::format("{}.\n\n", cell(axes_sentence(*points.front(), axes.fixed)));
  std::vector<std::string> titles;
  std::vector<bool> numeric;
  for (const Column* axis : axes.varying) {
    titles.emplace_back(axis->name);
    numeric.push_back(!std::holds_alternative<Text Row::*>(axis->field));
  }
  titles.insert(titles.end(), {"kernel", "fwd speedup", "bwd speedup"});
  if (joint) titles.emplace_back("fwd+bwd speedup");
  titles.emplace_back("peak mem reduction");
  numeric.push_back(false);
  numeric.resize(titles.size(), true);
  text += head(titles, numeric);
  for (const Speedup& speedup : all) {
    std::vector<std::string> cells;
    for (const Column* axis : axes.varying) cells.push_back(cell(plain_text(*speedup.point, *axis)));
    cells.insert(cells.end(),
                 {cell(speedup.kernel), number_cell(speedup.fwd, two_digits), number_cell(speedup.bwd, two_digits)});
    if (joint) cells.push_back(number_cell(speedup.fwd_bwd, two_digits));
    cells.push_back(number_cell(speedup.memory, two_digits));
    text += line_of(cells);
  }
  return text +
         "\nSpeed-up: median time of the baseline over that of the kernel. Peak mem reduction: peak bytes of the "
         "baseline over those of the kernel, each the higher of forward and backward. Above 1 the kernel is better; "
         "n/a where either side has no verified result.\n\n";
}

struct ResultColumn {
  const char* title;
  bool numeric;
  std::string (*text)(const Row& row);
};

std::string integer_cell(const Integer& value) { return value ? std::to_string(*value) : markdown::kAbsent; }

constexpr std::array<ResultColumn, 21> kResults = {{
    {"kernel", false, [](const Row& row) { return cell(row.kernel); }},
    {"variant", false, [](const Row& row) { return cell(row.variant); }},
    {"device", false, [](const Row& row) { return cell(row.device); }},
    {"dtype", false, [](const Row& row) { return cell(row.dtype); }},
    {"pass", false, [](const Row& row) { return cell(row.pass); }},
    {"causal", true, [](const Row& row) { return integer_cell(row.causal); }},
    {"batch", true, [](const Row& row) { return integer_cell(row.batch); }},
    {"heads", true, [](const Row& row) { return integer_cell(row.heads); }},
    {"kv heads", true, [](const Row& row) { return integer_cell(row.kv_heads); }},
    {"d_model", true, [](const Row& row) { return integer_cell(row.d_model); }},
    {"seq_len", true, [](const Row& row) { return integer_cell(row.seq_len); }},
    {"seq_len_k", true, [](const Row& row) { return integer_cell(row.seq_len_k); }},
    {"window", true, [](const Row& row) { return integer_cell(row.window); }},
    {"cache", false, [](const Row& row) { return cell(row.cache); }},
    {"latency", true, [](const Row& row) { return number_cell(row.time_us_median, time_text); }},
    {"TFLOP/s", true, [](const Row& row) { return number_cell(row.tflops, digits_text); }},
    {"GB/s", true, [](const Row& row) { return number_cell(row.gbps, digits_text); }},
    {"FLOP/byte", true, [](const Row& row) { return number_cell(row.intensity, digits_text); }},
    {"peak memory", true, [](const Row& row) { return number_cell(row.peak_bytes, bytes_text); }},
    {"error", true, [](const Row& row) { return number_cell(row.err_rel_max, error_text); }},
    {"status", false,
     [](const Row& row) { return row.reason.empty() ? cell(row.status) : cell(row.status + ": " + row.reason); }},
}};

std::string result_section(const Document& document) {
  std::string text = fmt::format("## Results\n\n{}.\n\n", cell(status_sentence(document)));
  std::vector<std::string> titles;
  std::vector<bool> numeric;
  for (const ResultColumn& column : kResults) {
    titles.emplace_back(column.title);
    numeric.push_back(column.numeric);
  }
  text += head(titles, numeric);
  for (const Row& row : document.rows) {
    std::vector<std::string> cells;
    for (const ResultColumn& column : kResults) cells.push_back(column.text(row));
    text += line_of(cells);
  }
  return text +
         "\nLatency is the median. TFLOP/s counts the useful operations, causal exactly; 1 GB = 1e9 bytes, 1 GiB = "
         "2^30; error is the largest relative to its tensor.\n\n";
}

/// Training runs, with the cells of the terminal's table and the status in words.
std::string training_section(const Document& document) {
  std::string text = fmt::format("## Results\n\n{}.\n\n", cell(status_sentence(document)));
  std::vector<std::string> titles;
  std::vector<bool> numeric;
  for (const Cell& column : training_cells()) {
    titles.emplace_back(cell(column.title));
    numeric.push_back(!column.left);
  }
  text += head(titles, numeric);
  for (const Row& row : document.rows) {
    std::vector<std::string> cells;
    for (const Cell& column : training_cells()) cells.push_back(cell(column.text(row, {})));
    if (!row.reason.empty()) cells.back() += ": " + cell(row.reason);
    text += line_of(cells);
  }
  text += "\n";
  for (const std::string& note : training_notes(document)) text += cell(note) + ".\n";
  return text + "\n";
}

std::string provenance_section(const Document& document) {
  constexpr std::size_t kValuesMax = 4;
  std::string text = "## Provenance\n\n" + head({"what", "value"}, {false, false});
  for (const ProvenanceEntry& entry : provenance(document)) {
    std::string values;
    for (std::size_t i = 0; i < std::min(entry.values.size(), kValuesMax); ++i) {
      values += (i == 0 ? "" : "; ") + cell(entry.values[i]);
    }
    if (entry.values.size() > kValuesMax) values += fmt::format("; {} more", entry.values.size() - kValuesMax);
    text += line_of({cell(entry.column->name), values});
  }
  return text;
}

}  // namespace

std::string emit_md(const Document& document, const EmitOptions& options) {
  if (!document.rows.empty() && kind_of(document.rows.front()) == RowKind::kTraining) {
    return "# Sharded training\n\n" + training_section(document) + provenance_section(document);
  }
  return "# Attention kernels\n\n" + speedup_section(document, options.baseline) + result_section(document) +
         provenance_section(document);
}

}  // namespace attnbench::reports
