// sweep --dry-run: the plan as a table, with what is predicted of each case. Opens no device.
#pragma once

#include <span>
#include <string>

#include "bench/cli/options.hpp"
#include "bench/plan/plan.hpp"

namespace attnbench::cli {

/// One line per case, refusals with their reason, then the totals.
std::string plan_table(const plan::Plan& plan, const SweepOptions& options, std::span<const plan::Candidate> devices);

int dry_run_verb(const SweepOptions& options);

}  // namespace attnbench::cli
