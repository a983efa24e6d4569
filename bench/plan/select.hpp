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

/// Every choice is of a kernel, and a variant of it, that some device has. Error: kUsage, with the nearest name.
base::Result<void> check_choices(std::span<const cli::KernelChoice> choices, std::span<const Candidate> candidates);

/// Every chosen kernel, a baseline that was asked for and every kernel of an exclude rule is on some device.
/// Error: kUsage, with the nearest name.
base::Result<void> check_kernels(const cli::SweepOptions& options, std::span<const Candidate> candidates);

/// Every device has the clock that was asked for. Error: kUsage, with those that it has.
base::Result<void> check_timing(const cli::SweepOptions& options, std::span<const Candidate> candidates);

/// Some rule has all its terms true of the case.
bool excluded(const Case& candidate, std::span<const cli::ExcludeRule> rules);

}  // namespace attnbench::plan
