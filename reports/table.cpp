// The table on the terminal.
#include "reports/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "reports/cells.hpp"
#include "reports/format.hpp"
#include "reports/speedup.hpp"
#include "reports/training_table.hpp"

namespace attnbench::reports {

namespace {

constexpr std::size_t kMostCells = 60;  // of a kernel or a shape; a stranger's row can have longer ones

/// "blas:onednn+fp32": a kernel may say of a 16-bit dtype what it converted to, when the row is there.
constexpr std::size_t kConvertedKernelCells = 16;

std::string device_text(const Row& row) { return row.device.empty() ? "" : " " + row.device; }

std::string threads_text(const Row& row) { return row.threads ? fmt::format(" t{}", *row.threads) : ""; }

std::string shape_text(const Row& row, const TableStyle& style) {
  std::string shape;
  const auto add = [&shape](const char* letter, const Integer& value) {
    if (value) shape += fmt::format("{}{}{}", shape.empty() ? "" : " ", letter, *value);
  };
  add("B", row.batch);
  add("H", row.heads);
  if (row.kv_heads && row.kv_heads != row.heads) shape += fmt::format("/{}", *row.kv_heads);
  add("D", row.head_dim);
  add("S", row.seq_len);
  if (row.seq_len_k && row.seq_len_k != row.seq_len) shape += fmt::format("x{}", *row.seq_len_k);
  if (row.causal == 1) shape += " causal";
  add("w", row.window);
  if (style.threads_in_shape) shape += threads_text(row);
  if (style.device_in_shape) shape += device_text(row);
  return shape;
}

/// "56.7 G": the letter alone, the title says FLOP/s.
std::string short_rate(double tflops) {
  std::string text = rate_text(tflops);
  return text.substr(0, text.size() - std::string_view("FLOP/s").size());
}

std::string or_absent_word(const std::string& word) { return word.empty() ? "n/a" : one_line(word); }

std::string percent(double value) {
  return value < 99.95 ? fmt::format("{:.1f}%", value) : fmt::format("{:.0f}%", value);
}

constexpr std::array<Cell, 13> kCells = {{
    {"kernel", 14, true, true, 0, [](const Row& row, const TableStyle&) { return kernel_text(row); },
     &TableStyle::kernel_cells},
    {"pass", 7, true, true, 0, [](const Row& row, const TableStyle&) { return row.pass; }},
    {"dtype", 5, true, true, 7, [](const Row& row, const TableStyle&) { return row.dtype; }},
    {"shape", 23, true, true, 0, shape_text, &TableStyle::shape_cells},
    {"cache", 5, true, true, 2, [](const Row& row, const TableStyle&) { return row.cache; }},
    {"median", 8, false, false, 0,
     [](const Row& row, const TableStyle&) { return or_absent(row.time_us_median, time_text); }},
    {"±CI", 5, false, false, 6,
     [](const Row& row, const TableStyle&) { return or_absent(ci_half_width_pct(row), percent); }},
    {"FLOP/s", 6, false, false, 0, [](const Row& row, const TableStyle&) { return or_absent(row.tflops, short_rate); }},
    {"GB/s", 6, false, false, 3, [](const Row& row, const TableStyle&) { return or_absent(row.gbps, digits_text); }},
    {"FMA%", 5, false, false, 4, [](const Row& row, const TableStyle&) { return or_absent(row.fma_pct, percent); }},
    {"memory", 8, false, false, 5,
     [](const Row& row, const TableStyle&) { return or_absent(row.peak_bytes, bytes_text); }},
    {"error", 7, false, false, 1,
     [](const Row& row, const TableStyle&) { return or_absent(row.err_rel_max, error_text); }},
    {"status", 6, true, false, 0, [](const Row& row, const TableStyle&) { return row.status; }},
}};

/// Rows of cells under titles, columns as wide as their widest cell; `left` are the columns aligned left.
std::string plain_grid(const std::vector<std::vector<std::string>>& lines, const std::vector<bool>& left,
                       const TableStyle& style) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], cell_count(line[i]));
  }
  std::string grid;
  for (std::size_t n = 0; n < lines.size(); ++n) {
    std::string text;
    for (std::size_t i = 0; i < lines[n].size(); ++i) {
      text += "  ";
      text += left[i] ? padded_right(lines[n][i], widths[i]) : padded_left(lines[n][i], widths[i]);
    }
    grid += n == 0 ? painted(without_trailing_spaces(text), kDim, style) : without_trailing_spaces(text);
    grid += '\n';
  }
  return grid;
}

bool any_of(const std::vector<Speedup>& all, Number Speedup::*ratio) {
  return std::any_of(all.begin(), all.end(), [ratio](const Speedup& speedup) { return (speedup.*ratio).has_value(); });
}

struct RatioColumn {
  const char* title;
  Number Speedup::*ratio;
};

constexpr std::array<RatioColumn, 4> kRatios = {
    {{"fwd", &Speedup::fwd}, {"bwd", &Speedup::bwd}, {"fwd+bwd", &Speedup::fwd_bwd}, {"memory", &Speedup::memory}}};

std::string speedup_grid(const std::vector<Speedup>& all, const AxisSplit& axes, const TableStyle& style) {
  std::vector<std::vector<std::string>> lines(1);
  std::vector<bool> left;
  for (const Column* axis : axes.varying) {
    lines[0].emplace_back(axis->name);
    left.push_back(std::holds_alternative<Text Row::*>(axis->field));
  }
  lines[0].emplace_back("kernel");
  left.push_back(true);
  for (const RatioColumn& column : kRatios) {
    if (any_of(all, column.ratio)) lines[0].emplace_back(column.title);
  }
  left.resize(lines[0].size(), false);
  for (const Speedup& speedup : all) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const Column* axis : axes.varying) line.push_back(or_absent_word(plain_text(*speedup.point, *axis)));
    line.push_back(one_line(speedup.kernel));
    for (const RatioColumn& column : kRatios) {
      if (any_of(all, column.ratio)) line.push_back(or_absent(speedup.*column.ratio, ratio_text));
    }
  }
  return plain_grid(lines, left, style);
}

/// One line per kernel with the geometric means, each with its least and greatest value.
std::string mean_lines(const std::vector<Speedup>& all) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const RatioColumn& column : kRatios) {
    for (const SpeedupRange& range : speedup_ranges(all, column.ratio)) {
      if (range.points < 2) continue;
      auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == range.kernel; });
      if (line == lines.end()) line = lines.insert(lines.end(), {range.kernel, {}});
      line->second += fmt::format("{}{} {} ({} to {}, {} points)", line->second.empty() ? "" : ", ", column.title,
                                  ratio_text(range.mean), ratio_text(range.low), ratio_text(range.high), range.points);
    }
  }
  std::string text;
  for (const auto& [kernel, means] : lines) text += fmt::format("{}: {}\n", one_line(kernel), means);
  return text.empty() ? text : "Geometric means\n" + text;
}

}  // namespace

void TableFit::add(const Row& row) {
  if (kind_of(row) == RowKind::kTraining) {
    model_cells_ = std::max(model_cells_, cell_count(one_line(training_shape(row))));
    return;
  }
  if (rows_++ == 0) {
    device_ = row.device;
    threads_ = row.threads;
  }
  devices_differ_ = devices_differ_ || row.device != device_;
  threads_differ_ = threads_differ_ || row.threads != threads_;
  const std::size_t kernel = cell_count(one_line(kernel_text(row)));
  kernel_cells_ = std::max({kernel_cells_, kernel, row.dtype == "fp32" ? 0 : kConvertedKernelCells});
  shape_cells_ = std::max(shape_cells_, cell_count(shape_text(row, {})));
  device_cells_ = std::max(device_cells_, cell_count(one_line(device_text(row))));
  threads_cells_ = std::max(threads_cells_, threads_text(row).size());
}

TableStyle TableFit::applied_to(TableStyle style) const {
  style.device_in_shape = devices_differ_;
  style.threads_in_shape = threads_differ_;
  const std::size_t shape =
      shape_cells_ + (devices_differ_ ? device_cells_ : 0) + (threads_differ_ ? threads_cells_ : 0);
  style.kernel_cells = std::max(style.kernel_cells, std::min(kernel_cells_, kMostCells));
  style.shape_cells = std::max(style.shape_cells, std::min(shape, kMostCells));
  style.model_cells = std::max(style.model_cells, std::min(model_cells_, kMostCells));
  return style;
}

std::string table_header(const TableStyle& style, RowKind kind) {
  return cell_header(kind == RowKind::kTraining ? training_cells() : std::span<const Cell>(kCells), style);
}

std::string table_row(const Row& row, const TableStyle& style) {
  return cell_row(kind_of(row) == RowKind::kTraining ? training_cells() : std::span<const Cell>(kCells), row, style);
}

std::string table_summary(const Document& document, const EmitOptions& options, const TableStyle& style) {
  const bool training = !document.rows.empty() && kind_of(document.rows.front()) == RowKind::kTraining;
  std::string text = "\n";
  if (training) {
    for (const std::string& note : training_notes(document)) text += painted("  " + note, kDim, style) + "\n";
    return text + status_sentence(document) + "\n";
  }
  const std::vector<Speedup> all = speedups(document, options.baseline);
  const bool any =
      std::any_of(kRatios.begin(), kRatios.end(), [&](const RatioColumn& c) { return any_of(all, c.ratio); });
  if (any) {
    std::vector<const Row*> points;
    for (const Speedup& speedup : all) points.push_back(speedup.point);
    const AxisSplit axes = split_axes(points);
    text += painted(fmt::format("Speed-up over {}", one_line(options.baseline)), kBold, style);
    text += fmt::format(" ({})\n", one_line(axes_sentence(*points.front(), axes.fixed)));
    text += speedup_grid(all, axes, style);
    text += painted("  time of the baseline / of the kernel; memory: the same of the peaks, forward and backward", kDim,
                    style);
    text += '\n';
    text += mean_lines(all);
  } else if (!all.empty()) {
    text += fmt::format("No speed-up over {}: no point has an ok row of both it and another kernel.\n",
                        one_line(options.baseline));
  }
  return text + status_sentence(document) + "\n";
}

}  // namespace attnbench::reports
