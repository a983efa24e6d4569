// Which kernels a plan takes, and which of its cases are excluded. Pure.
#pragma once

#include <span>
#include <vector>

#include "bench/plan/plan.hpp"

namespace attnbench::plan {

/// The kernel has the choice's name and, where one was given, its variant.
bool matches(const kernels::KernelInfo& kernel, const cli::KernelChoice& choice);

/// The choices that this device has, in the order asked; without --kernels every kernel name of the catalog that
/// runs_unnamed, once.
std::vector<cli::KernelChoice> choices_on(const cli::SweepOptions& options, const Candidate& candidate);

/// Every chosen kernel, and a baseline that was asked for, is on some device. Error: kUsage, with the nearest name.
base::Result<void> check_kernels(const cli::SweepOptions& options, std::span<const Candidate> candidates);

/// Some rule has all its terms true of the case.
bool excluded(const Case& candidate, std::span<const cli::ExcludeRule> rules);

}  // namespace attnbench::plan
