// The table on the terminal: a line per row as it finishes, and the closing summary.
#pragma once

#include <cstddef>
#include <string>

#include "reports/emit.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

struct TableStyle {
  bool color = false;  // whoever prints decides, from --color, NO_COLOR and the terminal
  int width = 0;       // columns of the terminal; too few drop columns, the least needed first. 0: no terminal, all
  std::size_t kernel_cells = 14;  // room for the kernel and its variant
  std::size_t shape_cells = 23;   // room for the shape
  std::size_t model_cells = 13;   // room for the model of a training run
  bool device_in_shape = false, threads_in_shape = false;
};

/// Finds the room for what tells rows apart, so that nothing of it is cut off: their kernels, their shapes, and the
/// device and the threads, which have no column of their own, where they differ. A row at a time, since a plan can have
/// a million.
class TableFit {
 public:
  void add(const Row& row);
  TableStyle applied_to(TableStyle style) const;

 private:
  std::size_t rows_ = 0, kernel_cells_ = 0, shape_cells_ = 0, model_cells_ = 0;
  std::size_t device_cells_ = 0, threads_cells_ = 0;  // each with the space before it
  Text device_;
  Integer threads_;
  bool devices_differ_ = false, threads_differ_ = false;
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
