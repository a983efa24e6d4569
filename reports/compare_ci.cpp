// A comparison for the machines that look at it: JUnit, GitHub's annotations.
#include <fmt/format.h>

#include <algorithm>

#include "bench/base/suggest.hpp"
#include "reports/annotations.hpp"
#include "reports/compare_text.hpp"
#include "reports/junit.hpp"

namespace attnbench::reports {
namespace {

/// What a row that closes the gate, or is in doubt, has to say for itself.
std::string sentence(const Change& change) {
  std::string text = fmt::format("{} {}", change.gate.metric->name, to_string(change.verdict));
  if (change.change_pct) text += fmt::format(", {:+.1f} %", *change.change_pct);
  if (change.shift_low_pct)
    text += fmt::format(" ({:+.1f} to {:+.1f} %)", *change.shift_low_pct, *change.shift_high_pct);
  return change.reason.empty() ? text : text + ": " + change.reason;
}

junit::Outcome outcome_of(const Change& change, bool strict) {
  if (closes_gate(change)) return junit::Outcome::kFailure;
  switch (change.verdict) {
    case Verdict::kSame:
    case Verdict::kImproved:
      return junit::Outcome::kPassed;
    case Verdict::kNotComparable:
      return junit::Outcome::kSkipped;
    default:
      return strict ? junit::Outcome::kError : junit::Outcome::kSkipped;
  }
}

}  // namespace

std::string compare_junit(const Comparison& comparison, bool strict) {
  std::vector<junit::TestCase> cases;
  for (const Difference& difference : comparison.differences) {
    if (difference.allowed) continue;
    cases.push_back({"attnbench.set_up",
                     std::string(difference.column->name),
                     {},
                     junit::Outcome::kFailure,
                     "not comparable",
                     difference_sentence(difference)});
  }
  for (const Change& change : comparison.changes) {
    cases.push_back({fmt::format("attnbench.{}", change.gate.metric->name),
                     change.key,
                     {},
                     outcome_of(change, strict),
                     std::string(to_string(change.verdict)),
                     sentence(change)});
  }
  return junit::document("attnbench compare", cases);
}

std::string compare_annotations(const Comparison& comparison, bool strict) {
  std::vector<annotations::Annotation> errors;
  std::vector<annotations::Annotation> warnings;
  for (const Difference& difference : comparison.differences) {
    (difference.allowed ? warnings : errors).push_back({"attnbench set-up", difference_sentence(difference)});
  }
  for (const Change& change : comparison.changes) {
    const junit::Outcome outcome = outcome_of(change, strict);
    if (outcome == junit::Outcome::kPassed) continue;
    (outcome == junit::Outcome::kSkipped ? warnings : errors)
        .push_back({fmt::format("attnbench {}", to_string(change.verdict)), change.key + ": " + sentence(change)});
  }
  return annotations::lines("error", errors) + annotations::lines("warning", warnings);
}

base::Result<std::string> emit_comparison(std::string_view format, const Comparison& comparison, bool strict) {
  if (format == "csv") return compare_csv(comparison);
  if (format == "json") return compare_json(comparison);
  if (format == "md" || format == "step-summary") return compare_markdown(comparison);
  if (format == "junit") return compare_junit(comparison, strict);
  if (format == "annotations") return compare_annotations(comparison, strict);
  return base::fail(base::ErrorKind::kUsage, fmt::format("compare has no format \"{}\"; give one of {}", format,
                                                         fmt::join(kCompareFormats, ", ")));
}

}  // namespace attnbench::reports
