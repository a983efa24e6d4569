// Pairs rows by key and judges each pair.
#include "reports/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "bench/base/two_samples.hpp"

namespace attnbench::reports {
namespace {

/// Columns that must agree before times may be compared. A different commit is the point of comparing.
constexpr std::array<std::string_view, 9> kSetUp = {"device_name", "isa",   "cores",    "driver", "libraries",
                                                    "compiler",    "flags", "governor", "timing"};

Number number_of(const Row& row, const Column& column) {
  if (is_absent(row, column)) return std::nullopt;
  return std::visit(
      [&row](auto field) -> Number {
        if constexpr (std::is_same_v<decltype(field), Number Row::*>) {
          return row.*field;
        } else if constexpr (std::is_same_v<decltype(field), Integer Row::*>) {
          return static_cast<double>(*(row.*field));
        } else {
          return std::nullopt;
        }
      },
      column.field);
}

bool is_time(const Column& metric) { return metric.name.starts_with("time_us_"); }
bool is_rate(const Column& metric) { return metric.name == "tflops" || metric.name == "gbps"; }

/// Rows of one side by key; of several documents every row of the key.
using Launches = std::map<std::string, std::vector<const Row*>>;

Launches by_key(const std::vector<Document>& documents) {
  Launches result;
  for (const Document& document : documents) {
    for (const Row& row : document.rows) result[row.key].push_back(&row);
  }
  return result;
}

/// The first row that is not ok, else the last: what became of the key on this side.
const Row* representative(const std::vector<const Row*>& rows) {
  for (const Row* row : rows) {
    if (row->status != status::kOk) return row;
  }
  return rows.back();
}

Side side_of(const std::vector<const Row*>* rows) {
  Side side;
  if (rows == nullptr || rows->empty()) return side;
  side.row = representative(*rows);
  if (rows->size() == 1) {
    side.times_us = base::thinned(side.row->sample_times_us);
    return side;
  }
  for (const Row* row : *rows) {
    if (row->time_us_median) side.times_us.push_back(*row->time_us_median);
  }
  return side;
}

/// The metric of one side: of several launches the median of theirs.
Number value_of(const std::vector<const Row*>& rows, const Column& metric) {
  std::vector<double> values;
  for (const Row* row : rows) {
    if (const Number value = number_of(*row, metric)) values.push_back(*value);
  }
  return base::median(values);
}

std::vector<double> logarithms(const std::vector<double>& times) {
  std::vector<double> result;
  for (const double time : times) {
    if (time > 0) result.push_back(std::log(time));
  }
  return result;
}

/// Test and interval of the shift, as shares of the base. A rate falls as the time grows.
void add_statistics(Change& change, double alpha) {
  const std::vector<double> from = logarithms(change.base.times_us);
  const std::vector<double> to = logarithms(change.next.times_us);
  const auto test = base::mann_whitney(from, to);
  const auto shift = base::hodges_lehmann(from, to, alpha);
  if (!test || !shift) return;
  change.p = test->p;
  if (!shift->interval) return;
  const bool rate = is_rate(*change.gate.metric);
  const double low = rate ? -shift->interval->high : shift->interval->low;
  const double high = rate ? -shift->interval->low : shift->interval->high;
  change.shift_low_pct = 100 * std::expm1(low);
  change.shift_high_pct = 100 * std::expm1(high);
}

/// Half the interval of the median over the median, of the less certain side: the change cannot be told from less.
double own_noise_pct(const Change& change) {
  double widest = 0;
  for (const Side* side : {&change.base, &change.next}) {
    widest = std::max(widest, 100 * base::relative_half_width(side->times_us).value_or(0));
  }
  return widest;
}

double floor_of(const Change& change, const CompareOptions& options) {
  const auto known = options.floors_pct.find(change.key);
  const double asked = known != options.floors_pct.end() ? known->second : options.floor_pct;
  return is_time(*change.gate.metric) || is_rate(*change.gate.metric) ? std::max(asked, own_noise_pct(change)) : 0;
}

bool compares_statuses(Change& change) {
  const std::string& before = change.base.row->status;
  const std::string& after = change.next.row->status;
  if (before == status::kOk && after == status::kOk) return true;
  change.verdict = Verdict::kNotComparable;
  const std::string& why = after == status::kOk ? change.base.row->reason : change.next.row->reason;
  change.reason = fmt::format("{} before, {} now{}{}", before, after, why.empty() ? "" : ": ", why);
  return false;
}

Change pair(const std::string& key, const Launches& base, const Launches& next, const Gate& gate,
            const CompareOptions& options) {
  Change change;
  change.key = key;
  change.gate = gate;
  const auto before = base.find(key);
  const auto after = next.find(key);
  change.base = side_of(before == base.end() ? nullptr : &before->second);
  change.next = side_of(after == next.end() ? nullptr : &after->second);
  if (change.base.row == nullptr || change.next.row == nullptr) {
    change.verdict = change.base.row == nullptr ? Verdict::kAdded : Verdict::kRemoved;
    change.reason = change.base.row == nullptr ? "only in the new run" : "only in the base";
    return change;
  }
  if (!compares_statuses(change)) return change;
  change.base_value = value_of(before->second, *gate.metric);
  change.next_value = value_of(after->second, *gate.metric);
  if (!change.base_value || !change.next_value) {
    change.verdict = Verdict::kNotComparable;
    change.reason = fmt::format("no {} on {} side", gate.metric->name, change.base_value ? "the new" : "the base");
    return change;
  }
  if (*change.base_value != 0) {
    change.change_pct = 100 * (*change.next_value / *change.base_value - 1);
  } else if (*change.next_value == 0) {
    change.change_pct = 0;
  }
  if (is_time(*gate.metric) || is_rate(*gate.metric)) add_statistics(change, options.alpha);
  change.floor_pct = floor_of(change, options);
  return change;
}

/// Judges a number that is exact: bytes, counts, errors.
void judge_exact(Change& change) {
  const double bad = (change.gate.more_is_worse ? 1 : -1) * change.change_pct.value_or(HUGE_VAL);
  change.verdict = bad > change.gate.limit_pct    ? Verdict::kRegressed
                   : bad < -change.gate.limit_pct ? Verdict::kImproved
                                                  : Verdict::kSame;
}

void judge_sampled(Change& change, double alpha) {
  if (!change.p_corrected || !change.shift_low_pct) {
    change.reason = fmt::format("{} and {} samples are too few for an interval", change.base.times_us.size(),
                                change.next.times_us.size());
    return;
  }
  const double sign = change.gate.more_is_worse ? 1 : -1;
  const double bad = sign * *change.change_pct;
  const double threshold = std::max(change.gate.limit_pct, change.floor_pct);
  const double low = sign > 0 ? *change.shift_low_pct : -*change.shift_high_pct;
  const double high = sign > 0 ? *change.shift_high_pct : -*change.shift_low_pct;
  const bool sure = *change.p_corrected < alpha;
  if (bad > threshold && sure && low > 0) {
    change.verdict = Verdict::kRegressed;
  } else if (bad < -threshold && sure && high < 0) {
    change.verdict = Verdict::kImproved;
  } else if (low >= -threshold && high <= threshold) {
    change.verdict = Verdict::kSame;
  } else {
    change.verdict = Verdict::kInconclusive;
    change.reason = fmt::format("{:+.1f} % to {:+.1f} % with a threshold of {:.1f} %: more samples would tell",
                                *change.shift_low_pct, *change.shift_high_pct, threshold);
  }
}

/// Corrects the p values of one gate and judges its rows.
void judge(std::vector<Change>& changes, const CompareOptions& options) {
  std::vector<double> p;
  for (const Change& change : changes) {
    if (change.p) p.push_back(*change.p);
  }
  const std::vector<double> corrected = base::holm(p);
  std::size_t at = 0;
  for (Change& change : changes) {
    if (change.p) change.p_corrected = corrected[at++];
    if (!change.base_value || !change.next_value) continue;
    if (is_time(*change.gate.metric) || is_rate(*change.gate.metric)) {
      judge_sampled(change, options.alpha);
    } else {
      judge_exact(change);
    }
  }
}

/// Every value of a column among the rows of those keys, sorted, joined.
std::string values_of(const Launches& side, const std::set<std::string>& keys, const Column& column) {
  std::set<std::string> values;
  for (const std::string& key : keys) {
    const auto found = side.find(key);
    if (found == side.end()) continue;
    for (const Row* row : found->second) {
      if (std::string text = plain_text(*row, column); !text.empty()) values.insert(std::move(text));
    }
  }
  return fmt::format("{}", fmt::join(values, ", "));
}

std::set<std::string> keys_of_both(const Launches& base, const Launches& next) {
  std::set<std::string> keys;
  for (const auto& [key, rows] : base) {
    if (next.contains(key)) keys.insert(key);
  }
  return keys;
}

/// Among the rows that have a partner.
std::vector<Difference> differences(const Launches& base, const Launches& next,
                                    const std::vector<std::string>& allowed) {
  const std::set<std::string> keys = keys_of_both(base, next);
  std::vector<Difference> result;
  for (const std::string_view name : kSetUp) {
    const Column* column = find_column(name);
    Difference difference{column, values_of(base, keys, *column), values_of(next, keys, *column), false};
    if (difference.base == difference.next) continue;
    difference.allowed = std::find(allowed.begin(), allowed.end(), name) != allowed.end();
    result.push_back(std::move(difference));
  }
  return result;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  constexpr std::array<std::string_view, 7> kWords = {"regressed", "improved", "same",          "inconclusive",
                                                      "added",     "removed",  "not comparable"};
  return kWords[static_cast<std::size_t>(verdict)];
}

bool Comparison::comparable() const {
  return std::all_of(differences.begin(), differences.end(), [](const Difference& d) { return d.allowed; });
}

bool Comparison::regressed() const {
  return std::any_of(changes.begin(), changes.end(), [](const Change& change) {
    const bool broke = change.verdict == Verdict::kNotComparable && change.base.row != nullptr &&
                       change.base.row->status == status::kOk;
    return change.verdict == Verdict::kRegressed || broke;
  });
}

Comparison compare(const std::vector<Document>& base, const std::vector<Document>& next,
                   const CompareOptions& options) {
  Comparison result;
  const Launches before = by_key(base);
  const Launches after = by_key(next);
  std::set<std::string> keys;
  for (const Launches* side : {&before, &after}) {
    for (const auto& [key, rows] : *side) keys.insert(key);
  }
  result.differences = differences(before, after, options.allowed);
  result.base_commit = values_of(before, keys, *find_column("commit"));
  result.next_commit = values_of(after, keys, *find_column("commit"));
  std::vector<Gate> gates = options.gates;
  if (gates.empty()) gates.push_back({find_column("time_us_median"), 5, true});
  for (const Gate& gate : gates) {
    std::vector<Change> changes;
    for (const std::string& key : keys) changes.push_back(pair(key, before, after, gate, options));
    judge(changes, options);
    std::move(changes.begin(), changes.end(), std::back_inserter(result.changes));
  }
  for (const Change& change : result.changes) ++result.counts[change.verdict];
  std::stable_sort(result.changes.begin(), result.changes.end(), [](const Change& a, const Change& b) {
    if (a.verdict != b.verdict) return a.verdict < b.verdict;
    return std::fabs(a.change_pct.value_or(0)) > std::fabs(b.change_pct.value_or(0));
  });
  return result;
}

int compare_exit_code(const Comparison& comparison, bool strict) {
  if (!comparison.comparable() || comparison.regressed()) return base::exit_code::kGateFailed;
  const auto any = [&comparison](Verdict verdict) {
    const auto found = comparison.counts.find(verdict);
    return found != comparison.counts.end() && found->second > 0;
  };
  const bool doubtful = any(Verdict::kInconclusive) || any(Verdict::kAdded) || any(Verdict::kRemoved);
  return strict && doubtful ? base::exit_code::kGateFailed : base::exit_code::kOk;
}

}  // namespace attnbench::reports
