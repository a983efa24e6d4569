// Cells of a table on the terminal: which fit, how they are aligned, and how a row without numbers is told.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "reports/row.hpp"
#include "reports/table.hpp"

namespace attnbench::reports {

struct Cell {
  const char* title;
  std::size_t width;
  bool left;      // aligned left
  bool identity;  // printed for rows without numbers too
  int drop;       // dropped in this order, 1 first, when the terminal is narrow; 0 never
  std::string (*text)(const Row& row, const TableStyle& style);
  std::size_t TableStyle::*room = nullptr;  // instead of the width
};

inline constexpr const char* kBold = "\x1b[1m";
inline constexpr const char* kDim = "\x1b[2m";

std::string painted(const std::string& text, const char* color, const TableStyle& style);
std::string without_trailing_spaces(std::string line);

template <typename Optional, typename Format>
std::string or_absent(const Optional& value, Format format) {
  return value ? format(static_cast<double>(*value)) : "n/a";
}

/// Titles and a rule. The last cell is the status.
std::string cell_header(std::span<const Cell> cells, const TableStyle& style);
/// The cells that fit; where the status is not ok, those of identity and the reason, wrapped.
std::string cell_row(std::span<const Cell> cells, const Row& row, const TableStyle& style);

}  // namespace attnbench::reports
