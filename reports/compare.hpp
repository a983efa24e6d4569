// Did it get slower? Two runs, paired row by row, and a verdict for each pair and each gate.
//
// A pair regressed only if all of this holds: the change of the metric exceeds the gate's threshold and the noise floor
// of the row, whichever is larger; the rank-sum test, corrected over all rows, says so at alpha; and the interval of
// the shift excludes no change. Metrics that have no samples (bytes) are exact numbers: the threshold alone decides.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/error.hpp"
#include "reports/columns.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

/// The gate of a comparison that names none.
inline constexpr std::string_view kDefaultGate = "time_us_median:+5%";

/// `time_us_median:+5%`: an increase above 5 % is a regression; with a minus sign a decrease is.
struct Gate {
  const Column* metric = nullptr;
  double limit_pct = 5;
  bool more_is_worse = true;
  bool operator==(const Gate&) const = default;
};

/// Errors  kUsage, the text not named: not METRIC:+P% or METRIC:-P%, an unknown metric (the nearest named), one that is
///         not a number
base::Result<Gate> parse_gate(std::string_view text);

enum class Verdict : std::uint8_t { kRegressed, kImproved, kSame, kInconclusive, kAdded, kRemoved, kNotComparable };
std::string_view to_string(Verdict verdict);

struct CompareOptions {
  std::vector<Gate> gates;                   // empty: time_us_median:+5%
  double alpha = 0.05;                       // chance of any false alarm among all rows
  std::map<std::string, double> floors_pct;  // noise floor by key of a row
  double floor_pct = 0;                      // of rows that are not in floors_pct
  std::vector<std::string> allowed;          // columns that may differ, e.g. driver; "all" for every one
  bool operator==(const CompareOptions&) const = default;
};

/// One side of a pair: what became of the key there, and the times that stand for it. Copies, so that a comparison
/// outlives the rows.
struct Side {
  std::string status, reason;    // status is empty where the side has no such row
  std::vector<double> times_us;  // samples of one launch, or the median of each of several launches
  std::size_t launches = 0;

  bool present() const { return !status.empty(); }
};

/// One row of the comparison: one key under one gate.
struct Change {
  std::string key;
  Side base, next;
  Gate gate;
  Number base_value, next_value;
  Number change_pct;                     // next over base, minus one
  Number shift_low_pct, shift_high_pct;  // interval of the shift at 1 - alpha, from the samples
  Number p, p_corrected;                 // rank-sum test; corrected after Holm over all rows of the gate
  double floor_pct = 0;                  // noise floor that the change had to exceed
  Verdict verdict = Verdict::kInconclusive;
  std::string reason;  // why, in a sentence
};

/// Columns that must be equal on both sides: what --allow takes.
std::span<const std::string_view> set_up_columns();

/// Metrics that samples stand for: times, and rates, which fall as the times grow. Others are exact numbers.
bool is_time(const Column& metric);
bool is_rate(const Column& metric);

/// It regressed, or was ok and is not any more.
bool closes_gate(const Change& change);

/// A fact of the machine or of the build that is not the same on both sides.
struct Difference {
  const Column* column = nullptr;
  std::string base, next;
  bool allowed = false;
};

struct Comparison {
  std::vector<Difference> differences;  // what makes the runs incomparable
  std::string base_commit, next_commit;
  std::vector<Change> changes;  // the worst first
  std::map<Verdict, std::size_t> counts;

  bool comparable() const;
  bool regressed() const;
};

/// Sides are documents; several documents on a side are launches of the same plan, and the medians of the launches are
/// what is compared, since the samples of one launch depend on each other.
Comparison compare(const std::vector<Document>& base, const std::vector<Document>& next, const CompareOptions& options);

/// 0 unless a row regressed or the runs must not be compared (1); under strict also 1 where a row is inconclusive,
/// added or removed.
int compare_exit_code(const Comparison& comparison, bool strict);

}  // namespace attnbench::reports
