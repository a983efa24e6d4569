// Rows as test cases.
#include "reports/emit.hpp"
#include "reports/junit.hpp"
#include "reports/named_rows.hpp"

namespace attnbench::reports {
namespace {

junit::Outcome outcome_of(const std::string& word) {
  if (word == status::kOk) return junit::Outcome::kPassed;
  if (word == status::kIncorrect || word == status::kFailed) return junit::Outcome::kFailure;
  if (word == status::kTimeout || word == status::kDeviceLost) return junit::Outcome::kError;
  return junit::Outcome::kSkipped;  // declined, did not fit, or the user stopped the run
}

}  // namespace

std::string emit_junit(const Document& document, const EmitOptions&) {
  std::vector<junit::TestCase> cases;
  for (const auto& [row, name] : named_rows(document)) {
    junit::TestCase test;
    test.class_name = "attnbench." + row->kernel;
    test.name = name;
    if (is_timed(*row)) test.seconds = *row->time_us_median * 1e-6;
    test.outcome = outcome_of(row->status);
    test.type = row->status;
    test.message = row->reason.empty() ? row->status : row->status + ": " + row->reason;
    cases.push_back(std::move(test));
  }
  return junit::document("attnbench", cases);
}

}  // namespace attnbench::reports
