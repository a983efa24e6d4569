// The table on the terminal: a line per row as it finishes, and the closing summary.
#pragma once

#include <string>

#include "reports/emit.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

struct TableStyle {
  bool color = false;  // whoever prints decides, from --color, NO_COLOR and the terminal
  int width = 0;       // columns of the terminal; 0: 120. Narrower than 120 drops columns, the least needed first
};

/// Kernels and training runs are told in tables of their own.
enum class RowKind { kKernel, kTraining };
inline RowKind kind_of(const Row& row) { return row.world_size ? RowKind::kTraining : RowKind::kKernel; }

/// Titles and a rule, two lines, each with its newline.
std::string table_header(const TableStyle& style, RowKind kind = RowKind::kKernel);

/// One row: a line with the numbers, or, when the status is not ok, the status and the whole reason, on as many lines
/// as it takes. Ends in a newline.
std::string table_row(const Row& row, const TableStyle& style);

/// Counts of each status; of kernels, speed-up and memory reduction over the baseline point by point, and their ranges.
std::string table_summary(const Document& document, const EmitOptions& options, const TableStyle& style);

}  // namespace attnbench::reports
