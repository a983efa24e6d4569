// One side of a comparison: a run, or a folder of runs of one plan.
#pragma once

#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

/// What load_rows takes gives one document. A folder without rows of its own gives one for each folder in it that has
/// some, in the order of their names: launches of the same plan.
///
/// Errors  kUnreadable: as load_rows; a folder that holds neither rows nor folders with rows
base::Result<std::vector<Document>> load_launches(const std::string& path);

}  // namespace attnbench::reports
