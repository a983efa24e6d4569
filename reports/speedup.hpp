// How much faster and smaller each kernel is than the baseline kernel on the same point.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/columns.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

/// One kernel on one point. A ratio above 1 means better than the baseline; absent where either side has no value.
struct Speedup {
  const Row* point = nullptr;  // any row of the kernel on the point: for the axes
  std::string kernel;          // kernel, or kernel:variant where the run has several
  Number fwd, bwd, fwd_bwd;    // time of the baseline over time of the kernel
  Number memory;               // peak of the baseline over peak of the kernel, each the highest of forward and backward
};

/// Every kernel but the baseline, point by point in the order of the rows.
///
/// Only rows that are ok count, and only such with the same clock (timing). The memory ratio is of the pair forward and
/// backward, or of fwd_bwd, or of what else was run; every pass of it must be ok on both sides, since the peak of a
/// forward alone is not that of a training step.
/// `baseline` is a kernel or kernel:variant; of several variants of it the first counts.
std::vector<Speedup> speedups(const Document& document, std::string_view baseline);

/// The row is of the kernel, or of the kernel:variant, whatever the variant appended ("onednn+fp32" is onednn's).
bool is_baseline(const Row& row, std::string_view baseline);

/// Columns that define a point: rows that agree in all of them differ in kernel, variant and pass alone.
std::vector<const Column*> axis_columns();

/// Axes for a heading and axes for the columns of a table.
struct AxisSplit {
  std::vector<const Column*> fixed;    // one value in all rows
  std::vector<const Column*> varying;  // several
};

/// Leaves out what says nothing: kv_heads and seq_len_k where they repeat heads and seq_len, head_dim (d_model over
/// heads), a customary scale, a window that no row has.
AxisSplit split_axes(const std::vector<const Row*>& rows);

/// "batch 8, heads 1, causal 1".
std::string axes_sentence(const Row& row, const std::vector<const Column*>& axes);

/// "27 rows: 25 ok, 1 unsupported, 1 oom_predicted".
std::string status_sentence(const Document& document);

/// Least, geometric mean and greatest of the ratios of one kernel.
struct SpeedupRange {
  std::string kernel;
  std::size_t points = 0;
  double low = 0, mean = 0, high = 0;
};

/// Of one of the ratios of Speedup, kernel by kernel; kernels without a value are left out.
std::vector<SpeedupRange> speedup_ranges(const std::vector<Speedup>& all, Number Speedup::*ratio);

}  // namespace attnbench::reports
