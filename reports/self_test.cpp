// Plants changes into rows.
#include "reports/self_test.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/base/rng.hpp"
#include "bench/base/stats.hpp"
#include "reports/compare_text.hpp"

namespace attnbench::reports {
namespace {

/// Missed rows that a trial names.
constexpr std::size_t kMostNamed = 3;

/// Every time of the row `factor` times as long; rates follow.
void slow(Row& row, double factor) {
  for (const Column& column : columns()) {
    const auto* const field = std::get_if<Number Row::*>(&column.field);
    if (field == nullptr || !(row.*(*field))) continue;
    if (is_time(column)) *(row.*(*field)) *= factor;
    if (is_rate(column)) *(row.*(*field)) /= factor;
  }
  for (double& time : row.sample_times_us) time *= factor;
}

void scale(Row& row, const Column& metric, double factor) {
  if (is_time(metric)) return slow(row, factor);
  if (is_rate(metric)) return slow(row, 1 / factor);
  if (const auto* number = std::get_if<Number Row::*>(&metric.field); number != nullptr && row.*(*number)) {
    *(row.*(*number)) *= factor;
  }
  if (const auto* integer = std::get_if<Integer Row::*>(&metric.field); integer != nullptr && row.*(*integer)) {
    const double scaled = static_cast<double>(*(row.*(*integer))) * factor;
    *(row.*(*integer)) = static_cast<std::int64_t>(factor > 1 ? std::ceil(scaled) : std::floor(scaled));
  }
}

/// The run with the gate's metric of every row made worse by so many per cent.
std::vector<Document> worsened(std::vector<Document> run, const Gate& gate, double percent) {
  const double factor = 1 + (gate.more_is_worse ? percent : -percent) / 100;
  for (Document& document : run) {
    for (Row& row : document.rows) {
      if (row.status == status::kOk) scale(row, *gate.metric, factor);
    }
  }
  return run;
}

std::size_t count(const Comparison& comparison, Verdict verdict) {
  const auto found = comparison.counts.find(verdict);
  return found == comparison.counts.end() ? 0 : found->second;
}

/// A change that the gate has to see: twice the highest threshold, and of a metric that falls at most half of what is
/// left of it.
double plain_to_see(const Gate& gate, const Comparison& unchanged) {
  double threshold = gate.limit_pct;
  for (const Change& change : unchanged.changes) threshold = std::max(threshold, change.floor_pct);
  const double twice = std::max(2 * threshold, 1.0);
  return gate.more_is_worse ? twice : std::min(twice, (threshold + 100) / 2);
}

/// Of a planted slow-down every row that has the metric must be caught.
Trial caught(const Gate& gate, double percent, const Comparison& comparison) {
  Trial trial;
  trial.name = fmt::format("{} made {:.3g} % worse", gate.metric->name, percent);
  std::size_t expected = 0;
  std::size_t missed = 0;
  std::string names;
  for (const Change& change : comparison.changes) {
    // Of nothing a share is nothing.
    if (!change.base_value || !change.next_value || *change.base_value == 0) continue;
    ++expected;
    if (change.verdict == Verdict::kRegressed) continue;
    if (missed++ < kMostNamed) {
      names += fmt::format("; {} is {}{}{}", change.key, to_string(change.verdict), change.reason.empty() ? "" : ": ",
                           change.reason);
    }
  }
  if (missed > kMostNamed) names += fmt::format("; and {} more", missed - kMostNamed);
  trial.passed = expected > 0 && missed == 0 && compare_exit_code(comparison, false) != base::exit_code::kOk;
  trial.found = fmt::format("{} of {} rows regressed{}", expected - missed, expected, names);
  if (expected == 0) trial.found = "no row has the metric, so the gate can never trip";
  return trial;
}

Trial quiet(std::string name, const Comparison& comparison) {
  return {std::move(name), count(comparison, Verdict::kRegressed) == 0, counts_sentence(comparison)};
}

/// The first row that is ok turned into one that failed.
Trial failing(const std::vector<Document>& run, const CompareOptions& options) {
  Trial trial{"a row that failed", false, "no row is ok"};
  std::vector<Document> broken = run;
  for (Document& document : broken) {
    for (Row& row : document.rows) {
      if (row.status != status::kOk) continue;
      row.status = status::kFailed;
      row.reason = "planted";
      row.time_us_median.reset();
      const Comparison comparison = compare(run, broken, options);
      trial.passed = compare_exit_code(comparison, false) != base::exit_code::kOk;
      trial.found = counts_sentence(comparison);
      return trial;
    }
  }
  return trial;
}

}  // namespace

Document made_up_run() {
  Document document{"made-up run", {}, {}};
  for (const double median_us : {100.0, 2500.0, 40000.0}) {
    Row row;
    row.kernel = "made_up";
    row.key = fmt::format("made_up/{}us", median_us);
    row.status = status::kOk;
    row.peak_bytes = 1 << 20;
    const base::Rng rng(1, static_cast<std::uint64_t>(median_us));
    for (std::uint64_t i = 0; i < 30; ++i) {
      // Even spread over +-2 %, a bell nowhere: ranks do not ask for one.
      const double share = static_cast<double>(rng.bits(i) >> 11) * 0x1p-53;
      row.sample_times_us.push_back(median_us * (0.98 + 0.04 * share));
    }
    row.samples = static_cast<std::int64_t>(row.sample_times_us.size());
    row.time_us_median = base::median(row.sample_times_us);
    row.tflops = 1e6 / *row.time_us_median;
    row.gbps = 1e8 / *row.time_us_median;
    document.rows.push_back(std::move(row));
  }
  return document;
}

std::vector<Trial> self_test(const std::vector<Document>& run, const CompareOptions& options) {
  std::vector<Trial> trials;
  trials.push_back(quiet("the run against itself", compare(run, run, options)));
  std::vector<Gate> gates = options.gates;
  if (gates.empty()) gates.push_back(*parse_gate(kDefaultGate));
  for (const Gate& gate : gates) {
    CompareOptions alone = options;
    alone.gates = {gate};
    const Comparison unchanged = compare(run, run, alone);
    // Whole numbers are rounded up when they are made worse, a little beyond half a small limit.
    const double half = gate.limit_pct / 2;
    trials.push_back(quiet(fmt::format("{} made {:.3g} % worse", gate.metric->name, half),
                           compare(run, worsened(run, gate, half), alone)));
    const double planted = plain_to_see(gate, unchanged);
    trials.push_back(caught(gate, planted, compare(run, worsened(run, gate, planted), alone)));
  }
  trials.push_back(failing(run, options));
  return trials;
}

}  // namespace attnbench::reports
