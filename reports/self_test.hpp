// Does the gate trip when it should? Known changes are planted into a run, and the verdicts are held against them.
#pragma once

#include <string>
#include <vector>

#include "reports/compare.hpp"

namespace attnbench::reports {

/// One planted change and what became of it.
struct Trial {
  std::string name;  // e.g. "time_us_median made 20 % worse"
  bool passed = false;
  std::string found;  // what the comparison said, with the rows that were missed
};

/// A run made up of three rows with 30 samples each, for when there is none at hand; equal at every call.
Document made_up_run();

/// The run against itself (no row may be regressed), then for every gate the run made worse by half its limit (no row
/// may be regressed), by twice its threshold (every row that has the metric must be), and with a row that failed (which
/// must close the gate). A row whose samples are too few is missed here as it would be in a comparison.
std::vector<Trial> self_test(const std::vector<Document>& run, const CompareOptions& options);

}  // namespace attnbench::reports
