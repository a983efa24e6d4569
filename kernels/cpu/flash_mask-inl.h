// Mask edges of a block of scores, written once for every instruction set.
#if defined(ATTNBENCH_FLASH_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTNBENCH_FLASH_MASK_INL_H_
#undef ATTNBENCH_FLASH_MASK_INL_H_
#else
#define ATTNBENCH_FLASH_MASK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/flash_exp-inl.h"
#include "kernels/problem.hpp"

HWY_BEFORE_NAMESPACE();
namespace attnbench::kernels::HWY_NAMESPACE {

/// Fills `begin` and `end` (each [rows]) for query rows [row, row + rows) and keys [key, key + keys).
inline bool fill_row_ranges(const Problem& p, std::int64_t row, std::int64_t rows, std::int64_t key, std::int64_t keys,
                            std::int32_t* begin, std::int32_t* end) {
  bool masked = false;
  for (std::int64_t r = 0; r < rows; ++r) {
    const KeyRange seen = visible_keys(p, row + r);
    begin[r] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen.begin - key, 0, keys));
    end[r] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen.end - key, 0, keys));
    masked = masked || begin[r] != 0 || end[r] != keys;
  }
  return masked;
}

/// As fill_row_ranges, transposed: per key the query rows that see it.
inline void fill_column_ranges(const Problem& p, std::int64_t row, std::int64_t rows, std::int64_t key,
                               std::int64_t keys, std::int32_t* begin, std::int32_t* end) {
  for (std::int64_t c = 0; c < keys; ++c) {
    const KeyRange seen = visible_queries(p, key + c);
    begin[c] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen.begin - row, 0, rows));
    end[c] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen.end - row, 0, rows));
  }
}

/// The columns of a group of rows that products over groups may read: the union of its rows' ranges, widened to whole
/// groups of `group` columns (1: a product reads single columns) and to whole vectors. A row of the block must have
/// room for it: its length is a multiple of both.
inline KeyRange widened(RowRanges ranges, std::int64_t first, std::int64_t last, std::int64_t group) {
  const auto down = [](std::int64_t n, std::int64_t m) { return n / m * m; };
  const std::int64_t begin = ranges.begin[first];
  const std::int64_t end = ranges.end[last];
  if (begin >= end) return {0, 0};
  const std::int64_t up = down(end + group - 1, group);
  return {down(down(begin, group), lanes()), down(up + lanes() - 1, lanes())};
}

/// Brings logits beyond the range of fp32 back to its largest magnitude; NaN stays.
inline void saturate(float* row, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    if (row[i] > kLargest) row[i] = kLargest;
    if (row[i] < -kLargest) row[i] = -kLargest;
  }
}

/// Overwrites the part of [span.begin, span.end) that a row does not see.
inline void fill_unseen(float* row, KeyRange span, KeyRange seen, float value) {
  const std::int64_t begin = std::clamp(seen.begin, span.begin, span.end);
  const std::int64_t end = std::clamp(seen.end, begin, span.end);
  std::fill(row + span.begin, row + begin, value);
  std::fill(row + end, row + span.end, value);
}

}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
