// Rendering of rows of cells.
#include "reports/cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "reports/format.hpp"

namespace attnbench::reports {

namespace {

constexpr std::size_t kDefaultWidth = 120;

constexpr const char* kReset = "\x1b[0m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kRed = "\x1b[31m";

/// Wrong or broken is red, what was declined or stopped is yellow.
const char* status_color(const std::string& word) {
  if (word == status::kOk) return kGreen;
  const bool declined = word == status::kUnsupported || word == status::kOom || word == status::kOomPredicted ||
                        word == status::kInterrupted;
  return declined ? kYellow : kRed;
}

std::size_t width_of(const Cell& cell, const TableStyle& style) {
  return cell.room != nullptr ? style.*cell.room : cell.width;
}

/// Of all columns.
std::size_t full_width(std::span<const Cell> cells, const TableStyle& style) {
  std::size_t used = cells.size() - 1;
  for (const Cell& cell : cells) used += width_of(cell, style);
  return used;
}

std::size_t width_of(std::span<const Cell> cells, const TableStyle& style) {
  return style.width > 0 ? static_cast<std::size_t>(style.width) : std::max(kDefaultWidth, full_width(cells, style));
}

/// Which cells fit, dropping the least needed first.
std::vector<bool> shown_cells(std::span<const Cell> cells, const TableStyle& style) {
  std::vector<bool> shown(cells.size(), true);
  std::size_t used = full_width(cells, style);
  for (int order = 1; used > width_of(cells, style) && order <= 9; ++order) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].drop != order) continue;
      shown[i] = false;
      used -= width_of(cells[i], style) + 1;
    }
  }
  return shown;
}

std::string aligned(const Cell& cell, std::string_view text, const TableStyle& style) {
  const std::size_t width = width_of(cell, style);
  const std::string fit = fitted(one_line(text), width);
  return cell.left ? padded_right(fit, width) : padded_left(fit, width);
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

}  // namespace

std::string painted(const std::string& text, const char* color, const TableStyle& style) {
  return style.color ? color + text + kReset : text;
}

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string cell_header(std::span<const Cell> cells, const TableStyle& style) {
  const auto shown = shown_cells(cells, style);
  std::string titles, rule;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!shown[i]) continue;
    titles.append(titles.empty() ? "" : " ").append(aligned(cells[i], cells[i].title, style));
    rule += rule.empty() ? "" : " ";
    for (std::size_t dash = 0; dash < width_of(cells[i], style); ++dash) rule += "─";
  }
  return painted(without_trailing_spaces(titles), kBold, style) + "\n" + painted(rule, kDim, style) + "\n";
}

std::string cell_row(std::span<const Cell> cells, const Row& row, const TableStyle& style) {
  const auto shown = shown_cells(cells, style);
  const bool ok = row.status == status::kOk;
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!shown[i] || (!ok && !cells[i].identity)) continue;
    const std::string cell = aligned(cells[i], cells[i].text(row, style), style);
    const bool is_status = i + 1 == cells.size();
    line += line.empty() ? "" : " ";
    line += is_status ? painted(without_trailing_spaces(cell), status_color(row.status), style) : cell;
  }
  if (ok) return without_trailing_spaces(line) + "\n";

  const std::size_t indent = cell_count(line) + 1;
  const std::size_t room = width_of(cells, style) > indent + 20 ? width_of(cells, style) - indent : 20;
  std::string text;
  for (const std::string& part : wrapped(outcome_text(row), room)) {
    text.append(text.empty() ? line : std::string(indent - 1, ' '));
    text.append(1, ' ').append(painted(part, status_color(row.status), style)).append(1, '\n');
  }
  return text;
}

}  // namespace attnbench::reports
