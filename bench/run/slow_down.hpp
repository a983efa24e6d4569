// Kernels made slower on purpose: a regression whose size is known, for trying out a gate.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/cli/options.hpp"
#include "bench/plan/plan.hpp"
#include "kernels/device/device.hpp"

namespace attnbench::run {

/// By how many per cent the kernel is to be slowed down; 0 where nothing asks for it. Of several rules the last counts.
double slow_down_pct(const std::vector<cli::SlowDown>& rules, std::string_view kernel, std::string_view variant);

/// Every rule names a kernel of the plan, and none of them one that a CUDA clock times: the delay is on the host.
///
/// Errors  kUsage
base::Result<void> check_slow_downs(const std::vector<cli::SlowDown>& rules, const plan::Plan& plan);

/// The launch, and then waiting for that share of the time that it took.
kernels::Launch slowed(kernels::Launch launch, double percent);

/// Of declared times (mock): those times longer.
std::unique_ptr<kernels::Stopwatch> slowed(std::unique_ptr<kernels::Stopwatch> stopwatch, double percent);

}  // namespace attnbench::run
