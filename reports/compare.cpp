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
constexpr std::array<std::string_view, 14> kSetUp = {
    "device_name", "isa",           "cores",         "os",
    "driver",      "libraries",     "compiler",      "flags",
    "timing",      "power_limit_w", "clock_max_mhz", "clock_mhz_median",
    "governor",    "fingerprint"};

/// A clock that was locked elsewhere shows in the samples alone; between runs of one setting it moves less than this.
constexpr double kSameClockPct = 10;

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
  const Row& row = *representative(*rows);
  side.status = row.status;
  side.reason = row.reason;
  side.launches = rows->size();
  if (rows->size() == 1) {
    side.times_us = base::thinned(row.sample_times_us);
    return side;
  }
  for (const Row* launch : *rows) {
    if (launch->time_us_median) side.times_us.push_back(*launch->time_us_median);
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
  const std::string& before = change.base.status;
  const std::string& after = change.next.status;
  if (before == status::kOk && after == status::kOk) return true;
  change.verdict = Verdict::kNotComparable;
  const std::string& why = after == status::kOk ? change.base.reason : change.next.reason;
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
  if (!change.base.present() || !change.next.present()) {
    change.verdict = !change.base.present() ? Verdict::kAdded : Verdict::kRemoved;
    change.reason = !change.base.present() ? "only in the new run" : "only in the base";
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

/// The smallest p that samples of these sizes can have: of the order in which one side is the larger throughout.
double least_p(std::size_t n, std::size_t m) {
  double orders = 1;
  for (std::size_t i = 1; i <= n && orders < 1e15; ++i) orders *= static_cast<double>(m + i) / static_cast<double>(i);
  return 2 / orders;
}

/// Why no shift of these rows could ever be significant; empty where one could.
std::string too_few(const Change& change, std::size_t rows, double alpha) {
  const std::size_t n = change.base.times_us.size();
  const std::size_t m = change.next.times_us.size();
  if (n == 0 || m == 0) {
    return fmt::format("no samples in {}; name the folder of the run, for --json leaves them out",
                       n == 0 ? "the base" : "the new run");
  }
  if (change.p_corrected && change.shift_low_pct && least_p(n, m) * static_cast<double>(rows) < alpha) return {};
  std::size_t enough = 2;
  while (least_p(enough, enough) * static_cast<double>(rows) >= alpha) ++enough;
  return fmt::format("{} and {} {} are too few for {} rows at alpha {}; {} on each side would do", n, m,
                     change.base.launches > 1 || change.next.launches > 1 ? "launches" : "independent samples", rows,
                     alpha, enough);
}

void judge_sampled(Change& change, std::size_t rows, double alpha) {
  change.reason = too_few(change, rows, alpha);
  if (!change.reason.empty()) return;
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
  } else if (low >= -threshold && high <= threshold && std::fabs(bad) <= threshold) {
    change.verdict = Verdict::kSame;
  } else if (low >= -threshold && high <= threshold) {
    change.verdict = Verdict::kInconclusive;
    change.reason = fmt::format(
        "the medians differ by {:+.1f} % and the samples by {:+.1f} % to {:+.1f} %: they have "
        "more than one mode; several launches of each side would tell",
        *change.change_pct, *change.shift_low_pct, *change.shift_high_pct);
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
      judge_sampled(change, p.size(), options.alpha);
    } else {
      judge_exact(change);
    }
  }
}

using Rows = std::vector<const Row*>;

/// Rows of the keys that `other` has too; of all keys where it is null.
Rows rows_of(const Launches& side, const Launches* other) {
  Rows rows;
  for (const auto& [key, of_key] : side) {
    if (other == nullptr || other->contains(key)) rows.insert(rows.end(), of_key.begin(), of_key.end());
  }
  return rows;
}

/// Every value of a column among the rows, sorted, joined.
std::string values_of(const Rows& rows, const Column& column) {
  std::set<std::string> values;
  std::string last;
  for (const Row* row : rows) {
    std::string text = plain_text(*row, column);
    if (text.empty() || text == last) continue;
    values.insert(text);
    last = std::move(text);
  }
  return fmt::format("{}", fmt::join(values, ", "));
}

/// The clock of the samples, over the rows.
Number clock_of(const Rows& rows) {
  std::vector<double> clocks;
  for (const Row* row : rows) {
    if (row->clock_mhz_median) clocks.push_back(*row->clock_mhz_median);
  }
  return base::median(clocks);
}

/// What the column says of the two sides where that makes them two set-ups.
std::optional<Difference> difference(const Rows& base, const Rows& next, const Column& column) {
  Difference found{&column, {}, {}, false};
  if (column.name == "clock_mhz_median") {
    const Number before = clock_of(base);
    const Number after = clock_of(next);
    if (!before || !after || std::fabs(*after / *before - 1) * 100 <= kSameClockPct) return std::nullopt;
    found.base = number_text(*before);
    found.next = number_text(*after);
  } else {
    found.base = values_of(base, column);
    found.next = values_of(next, column);
    if (found.base == found.next) return std::nullopt;
  }
  return found;
}

/// Among the rows that have a partner.
std::vector<Difference> differences(const Launches& base, const Launches& next,
                                    const std::vector<std::string>& allowed) {
  const Rows before = rows_of(base, &next);
  const Rows after = rows_of(next, &base);
  const auto allows = [&allowed](std::string_view name) {
    return std::any_of(allowed.begin(), allowed.end(),
                       [name](const std::string& a) { return a == name || a == "all"; });
  };
  std::vector<Difference> result;
  for (const std::string_view name : kSetUp) {
    // A hash of most of the others: it says something only where they are equal.
    if (name == "fingerprint" && !result.empty()) continue;
    auto found = difference(before, after, *find_column(name));
    if (!found) continue;
    found->allowed = allows(name);
    result.push_back(std::move(*found));
  }
  return result;
}

}  // namespace

std::span<const std::string_view> set_up_columns() { return kSetUp; }

bool is_time(const Column& metric) { return metric.name.starts_with("time_us_"); }

bool is_rate(const Column& metric) {
  constexpr std::array<std::string_view, 4> kRates = {"tflops", "gbps", "tokens_per_s", "fma_pct"};
  return std::find(kRates.begin(), kRates.end(), metric.name) != kRates.end();
}

std::string_view to_string(Verdict verdict) {
  constexpr std::array<std::string_view, 7> kWords = {"regressed", "improved", "same",          "inconclusive",
                                                      "added",     "removed",  "not comparable"};
  return kWords[static_cast<std::size_t>(verdict)];
}

bool Comparison::comparable() const {
  return std::all_of(differences.begin(), differences.end(), [](const Difference& d) { return d.allowed; });
}

bool Comparison::regressed() const { return std::any_of(changes.begin(), changes.end(), closes_gate); }

bool closes_gate(const Change& change) {
  const bool broke = change.verdict == Verdict::kNotComparable && change.base.status == status::kOk &&
                     change.next.status != status::kOk;
  return change.verdict == Verdict::kRegressed || broke;
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
  result.base_commit = values_of(rows_of(before, nullptr), *find_column("commit"));
  result.next_commit = values_of(rows_of(after, nullptr), *find_column("commit"));
  std::vector<Gate> gates = options.gates;
  if (gates.empty()) gates.push_back(*parse_gate(kDefaultGate));
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
