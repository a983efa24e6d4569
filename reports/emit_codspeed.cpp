// What a benchmark library leaves in $CODSPEED_PROFILE_FOLDER/results for CodSpeed's walltime runner.
#include <fmt/format.h>

#include <cmath>

#include "bench/base/stats.hpp"
#include "reports/columns.hpp"
#include "reports/emit.hpp"
#include "reports/named_rows.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::reports {
namespace {

constexpr double kNsPerUs = 1e3;
constexpr double kSecondsPerUs = 1e-6;

/// Rounds farther than 1.5 interquartile ranges from the quartiles, and farther than three deviations from the mean.
struct Strays {
  int by_iqr = 0;
  int by_stdev = 0;
};

Strays strays(const std::vector<double>& times, const base::Summary& summary) {
  Strays found;
  const double reach = 1.5 * (*summary.q3 - *summary.q1);
  const double deviations = 3 * summary.stdev.value_or(0);
  for (const double time : times) {
    found.by_iqr += time < *summary.q1 - reach || time > *summary.q3 + reach ? 1 : 0;
    found.by_stdev += std::fabs(time - *summary.mean) > deviations ? 1 : 0;
  }
  return found;
}

std::string stats(const Row& row) {
  const base::Summary summary = base::summarize(row.sample_times_us);
  const Strays found = strays(row.sample_times_us, summary);
  const auto ns = [](const Number& us) { return number_text(us.value_or(0) * kNsPerUs); };
  double total_us = 0;
  for (const double time : row.sample_times_us) total_us += time;
  const std::int64_t launches = row.launches_per_sample.value_or(1);
  // A deviation of one round is 0 by the rules of that format, which has no word for "not known".
  return fmt::format(
      R"("min_ns": {}, "max_ns": {}, "mean_ns": {}, "stdev_ns": {}, "q1_ns": {}, "median_ns": {}, "q3_ns": {}, )"
      R"("rounds": {}, "total_time": {}, "iqr_outlier_rounds": {}, "stdev_outlier_rounds": {}, "iter_per_round": {}, )"
      R"("warmup_iters": 1)",
      ns(summary.min), ns(summary.max), ns(summary.mean), ns(summary.stdev), ns(summary.q1), ns(summary.median),
      ns(summary.q3), row.sample_times_us.size(), number_text(total_us * kSecondsPerUs * static_cast<double>(launches)),
      found.by_iqr, found.by_stdev, launches);
}

/// Run identifiers end in the process that made the rows.
std::string pid_of(const Document& document) {
  for (const Row& row : document.rows) {
    const std::size_t dash = row.run_id.rfind('-');
    const std::string tail = dash == std::string::npos ? "" : row.run_id.substr(dash + 1);
    if (!tail.empty() && tail.size() < 10 && tail.find_first_not_of("0123456789") == std::string::npos &&
        tail.front() != '0') {
      return tail;
    }
  }
  return "1";
}

}  // namespace

std::string emit_codspeed(const Document& document, const EmitOptions&) {
  std::string version;
  for (const Row& row : document.rows) {
    if (!row.version.empty()) version = row.version;
  }
  std::string json = fmt::format(
      "{{\n  \"creator\": {{\"name\": \"attnbench\", \"version\": {}, \"pid\": {}}},\n"
      "  \"instrument\": {{\"type\": \"walltime\"}},\n  \"benchmarks\": [",
      json_quote(version), pid_of(document));
  const char* separator = "\n";
  for (const auto& [row, name] : sampled_rows(document)) {
    json += fmt::format("{}    {{\"name\": {}, \"uri\": {}, \"config\": {{}},\n     \"stats\": {{{}}}}}", separator,
                        json_quote(name), json_quote("attnbench::" + name), stats(*row));
    separator = ",\n";
  }
  return json + "\n  ]\n}\n";
}

}  // namespace attnbench::reports
