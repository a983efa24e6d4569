// The table on the terminal.
#include "reports/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>

#include "reports/format.hpp"
#include "reports/speedup.hpp"

namespace attnbench::reports {

namespace {

constexpr std::size_t kDefaultWidth = 120;

constexpr const char* kReset = "\x1b[0m";
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kRed = "\x1b[31m";

std::string painted(const std::string& text, const char* color, const TableStyle& style) {
  return style.color ? color + text + kReset : text;
}

/// Wrong or broken is red, what was declined or stopped is yellow.
const char* status_color(const std::string& word) {
  if (word == status::kOk) return kGreen;
  const bool declined = word == status::kUnsupported || word == status::kOom || word == status::kOomPredicted ||
                        word == status::kInterrupted;
  return declined ? kYellow : kRed;
}

std::string shape_text(const Row& row) {
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
  return shape;
}

/// "56.7 G": the letter alone, the title says FLOP/s.
std::string short_rate(double tflops) {
  std::string text = rate_text(tflops);
  return text.substr(0, text.size() - std::string_view("FLOP/s").size());
}

template <typename Optional, typename Format>
std::string or_absent(const Optional& value, Format format) {
  return value ? format(static_cast<double>(*value)) : "n/a";
}

std::string or_absent_word(const std::string& word) { return word.empty() ? "n/a" : one_line(word); }

struct Cell {
  const char* title;
  std::size_t width;
  bool left;      // aligned left
  bool identity;  // printed for rows without numbers too
  int drop;       // dropped in this order, 1 first, when the terminal is narrow; 0 never
  std::string (*text)(const Row& row);
};

std::string percent(double value) {
  return value < 99.95 ? fmt::format("{:.1f}%", value) : fmt::format("{:.0f}%", value);
}

constexpr std::array<Cell, 13> kCells = {{
    {"kernel", 14, true, true, 0, [](const Row& row) { return kernel_text(row); }},
    {"pass", 7, true, true, 0, [](const Row& row) { return row.pass; }},
    {"dtype", 5, true, true, 7, [](const Row& row) { return row.dtype; }},
    {"shape", 23, true, true, 0, [](const Row& row) { return shape_text(row); }},
    {"cache", 5, true, true, 2, [](const Row& row) { return row.cache; }},
    {"median", 8, false, false, 0, [](const Row& row) { return or_absent(row.time_us_median, time_text); }},
    {"±CI", 5, false, false, 6, [](const Row& row) { return or_absent(ci_half_width_pct(row), percent); }},
    {"FLOP/s", 6, false, false, 0, [](const Row& row) { return or_absent(row.tflops, short_rate); }},
    {"GB/s", 6, false, false, 3, [](const Row& row) { return or_absent(row.gbps, digits_text); }},
    {"FMA%", 5, false, false, 4, [](const Row& row) { return or_absent(row.fma_pct, percent); }},
    {"memory", 8, false, false, 5, [](const Row& row) { return or_absent(row.peak_bytes, bytes_text); }},
    {"error", 7, false, false, 1, [](const Row& row) { return or_absent(row.err_rel_max, error_text); }},
    {"status", 6, true, false, 0, [](const Row& row) { return row.status; }},
}};

std::size_t width_of(const TableStyle& style) {
  return style.width > 0 ? static_cast<std::size_t>(style.width) : kDefaultWidth;
}

/// Which cells fit, dropping the least needed first.
std::bitset<kCells.size()> shown_cells(const TableStyle& style) {
  std::bitset<kCells.size()> shown;
  std::size_t used = 0;
  for (std::size_t i = 0; i < kCells.size(); ++i) {
    shown.set(i);
    used += kCells[i].width + (i == 0 ? 0 : 1);
  }
  for (int order = 1; used > width_of(style) && order <= 7; ++order) {
    for (std::size_t i = 0; i < kCells.size(); ++i) {
      if (kCells[i].drop != order) continue;
      shown.reset(i);
      used -= kCells[i].width + 1;
    }
  }
  return shown;
}

std::string aligned(const Cell& cell, std::string_view text) {
  const std::string fit = fitted(one_line(text), cell.width);
  return cell.left ? padded_right(fit, cell.width) : padded_left(fit, cell.width);
}

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

/// Words in lines of at most `cells`; a longer word gets a line of its own.
std::vector<std::string> wrapped(const std::string& text, std::size_t cells) {
  std::vector<std::string> lines(1);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!lines.back().empty() && cell_count(lines.back()) + 1 + cell_count(word) > cells) lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

/// What a row without numbers says instead of them.
std::string outcome_text(const Row& row) {
  std::string text = one_line(row.status);
  const std::string reason = one_line(row.reason);
  if (!reason.empty()) text += ": " + reason;
  if (row.status == status::kIncorrect && row.err_rel_max) {
    text += fmt::format(" (error {}", error_text(*row.err_rel_max));
    if (row.err_tolerance) text += fmt::format(", allowed {}", error_text(*row.err_tolerance));
    text += ')';
  }
  return text;
}

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

std::string table_header(const TableStyle& style) {
  const auto shown = shown_cells(style);
  std::string titles, rule;
  for (std::size_t i = 0; i < kCells.size(); ++i) {
    if (!shown.test(i)) continue;
    titles.append(titles.empty() ? "" : " ").append(aligned(kCells[i], kCells[i].title));
    rule += rule.empty() ? "" : " ";
    for (std::size_t cell = 0; cell < kCells[i].width; ++cell) rule += "─";
  }
  return painted(without_trailing_spaces(titles), kBold, style) + "\n" + painted(rule, kDim, style) + "\n";
}

std::string table_row(const Row& row, const TableStyle& style) {
  const auto shown = shown_cells(style);
  const bool ok = row.status == status::kOk;
  std::string line;
  for (std::size_t i = 0; i < kCells.size(); ++i) {
    if (!shown.test(i) || (!ok && !kCells[i].identity)) continue;
    const std::string cell = aligned(kCells[i], kCells[i].text(row));
    const bool is_status = i + 1 == kCells.size();
    line += line.empty() ? "" : " ";
    line += is_status ? painted(without_trailing_spaces(cell), status_color(row.status), style) : cell;
  }
  if (ok) return without_trailing_spaces(line) + "\n";

  const std::size_t indent = cell_count(line) + 1;
  const std::size_t room = width_of(style) > indent + 20 ? width_of(style) - indent : 20;
  std::string text;
  for (const std::string& part : wrapped(outcome_text(row), room)) {
    text.append(text.empty() ? line : std::string(indent - 1, ' '));
    text.append(1, ' ').append(painted(part, status_color(row.status), style)).append(1, '\n');
  }
  return text;
}

std::string table_summary(const Document& document, const EmitOptions& options, const TableStyle& style) {
  std::string text = "\n";
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
