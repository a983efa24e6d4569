// What the cases of the fsdp verb need of this machine, before anything runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bench/base/error.hpp"
#include "bench/run/fsdp_case.hpp"

namespace attnbench::cli {

/// Memory of a case whose ranks all run here.
struct FsdpDemand {
  std::uint64_t rank_bytes = 0;   // of one rank, by the memory formula
  std::uint64_t total_bytes = 0;  // of all, processes included
  std::optional<std::uint64_t> free_bytes;
  std::string refusal;  // why it is not tried; empty where it fits
};

/// Errors  kUsage: options that contradict each other; kUnsupported, kAbsent: of the layers
base::Result<FsdpDemand> demand_of(const run::FsdpCase& c, const std::string& transport, kernels::Device& device);

/// A line for each case: what it is, memory of a rank and of all.
std::string fsdp_plan_table(std::span<const run::FsdpCase> cases, std::span<const std::string> transports,
                            std::span<const FsdpDemand> demands);

}  // namespace attnbench::cli
