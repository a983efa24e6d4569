// The memory formula against what is free, and the plan as a table.
#include "bench/cli/fsdp_plan.hpp"

#include <fmt/format.h>

#include "bench/base/saturate.hpp"
#include "bench/base/units.hpp"

namespace attnbench::cli {
namespace {

// Resident share of a rank that is a process, without the engine: 12 MiB seen with 2 ranks, 8 MiB with 16.
constexpr std::uint64_t kProcessBytes = std::uint64_t{12} << 20;

std::string bytes_text(std::uint64_t bytes) { return base::format_bytes(static_cast<double>(bytes)); }

}  // namespace

base::Result<FsdpDemand> demand_of(const run::FsdpCase& c, const std::string& transport, kernels::Device& device) {
  const auto rank = run::predicted_bytes(c, transport, device);
  if (!rank) return tl::unexpected(rank.error());
  FsdpDemand demand;
  demand.rank_bytes = *rank;
  const std::uint64_t each = base::saturating_sum({demand.rank_bytes, transport == "mpi" ? kProcessBytes : 0});
  const int here = transport == "nccl" ? 1 : c.world;  // each rank has a GPU of its own
  demand.total_bytes = base::saturating_product({static_cast<std::int64_t>(each), here});
  const std::uint64_t free_bytes = device.memory_free_bytes();
  if (free_bytes == 0) return demand;
  demand.free_bytes = free_bytes;
  if (demand.total_bytes <= free_bytes) return demand;
  const char* const verb = c.world == 1 ? " needs" : "s need";
  demand.refusal = fmt::format("{} rank{} {} for {}, {} are free; try a smaller --model, --batch or --world-size",
                               c.world, verb, bytes_text(demand.total_bytes), c.model.name, bytes_text(free_bytes));
  return demand;
}

std::string fsdp_plan_table(std::span<const run::FsdpCase> cases, std::span<const std::string> transports,
                            std::span<const FsdpDemand> demands) {
  std::string text = fmt::format("{:<14} {:>5} {:<5} {:<20} {:>5} {:>7} {:>8} {:>10} {:>10}\n", "strategy", "ranks",
                                 "via", "model", "batch", "seq_len", "prefetch", "of a rank", "of all");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const run::FsdpCase& c = cases[i];
    const FsdpDemand& demand = demands[i];
    text += fmt::format("{:<14} {:>5} {:<5} {:<20} {:>5} {:>7} {:>8} {:>10} {:>10}", fsdp::to_string(c.engine.strategy),
                        c.world, c.world == 1 ? "none" : transports[i], c.model.name, c.tokens.batch, c.tokens.seq,
                        c.engine.prefetch, bytes_text(demand.rank_bytes), bytes_text(demand.total_bytes));
    text += demand.refusal.empty() ? "\n" : fmt::format("  oom_predicted: {}\n", demand.refusal);
  }
  return text;
}

}  // namespace attnbench::cli
