// The plan for people.
#include "bench/cli/dry_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "bench/base/units.hpp"
#include "bench/cli/devices.hpp"
#include "bench/plan/predict.hpp"

namespace attnbench::cli {
namespace {

std::string shape_of(const plan::Case& c) {
  const kernels::Problem& p = c.problem;
  std::string shape = fmt::format("{}x{}", p.batch, p.heads);
  if (p.kv_heads != p.heads) shape += fmt::format("/{}", p.kv_heads);
  return shape;
}

std::string mask_of(const kernels::Problem& p) {
  std::string mask = p.causal ? "causal" : "full";
  if (p.window_left >= 0) mask += fmt::format(" w{}", base::format_count(p.window_left));
  return mask;
}

std::string length_of(const kernels::Problem& p) {
  std::string length = base::format_count(p.seq_q);
  if (p.seq_k != p.seq_q) length += fmt::format("/{}", base::format_count(p.seq_k));
  return length;
}

std::string line_of(const plan::Case& c) {
  const bool refused = !c.refused_status.empty();
  const bool sized = c.predicted_time_us > 0;
  return fmt::format("{:<8} {:<14} {:<8} {:<7} {:<5} {:<12} {:>9} {:>8} {:>9} {:<5} {:>10} {:>9}  {}\n", c.device,
                     fmt::format("{}:{}", c.kernel, c.variant), to_string(c.pass), to_string(c.problem.dtype),
                     to_string(c.cache), mask_of(c.problem), shape_of(c), c.d_model, length_of(c.problem),
                     c.threads > 0 ? fmt::format("t{}", c.threads) : "-",
                     sized ? base::format_bytes(static_cast<double>(c.predicted_bytes)) : "n/a",
                     sized ? base::format_time_us(c.predicted_time_us) : "n/a",
                     refused ? fmt::format("{}: {}", c.refused_status, c.refused_reason) : std::string());
}

}  // namespace

std::string plan_table(const plan::Plan& plan, const SweepOptions& options, std::span<const plan::Candidate> devices) {
  std::string text =
      fmt::format("{:<8} {:<14} {:<8} {:<7} {:<5} {:<12} {:>9} {:>8} {:>9} {:<5} {:>10} {:>9}\n", "device", "kernel",
                  "pass", "dtype", "cache", "mask", "batch x h", "d_model", "seq_len", "host", "memory", "time");
  std::size_t cases = 0;
  std::size_t refused = 0;
  const plan::Case* largest = nullptr;
  for (const plan::Point& point : plan.points) {
    for (const plan::Case& c : point.cases) {
      text += line_of(c);
      ++cases;
      if (!c.refused_status.empty()) {
        ++refused;
        continue;
      }
      if (largest == nullptr || c.predicted_bytes > largest->predicted_bytes) largest = &c;
    }
  }
  const auto bytes = [](std::uint64_t count) { return base::format_bytes(static_cast<double>(count)); };
  text += fmt::format("\n{} cases in {} points, {} refused", cases, plan.points.size(), refused);
  if (largest != nullptr) {
    text += fmt::format("; largest {}, beside {} of the harness", bytes(largest->predicted_bytes),
                        bytes(largest->harness_bytes));
  }
  const plan::Duration duration = plan::predicted_duration(plan, options.sampling);
  text += fmt::format(
      "\nIt takes from {} (every row stops as soon as it may) to {} (every row runs to its limit), with "
      "cache flushes and checks, at nominal rates.\n",
      base::format_time_us(duration.least_s * 1e6), base::format_time_us(duration.most_s * 1e6));
  for (const plan::Candidate& device : devices) {
    const kernels::DeviceFacts& facts = device.facts;
    text += fmt::format("{}: {}, {}\n", facts.id, facts.name,
                        facts.memory_free_bytes > 0
                            ? base::format_bytes(static_cast<double>(facts.memory_free_bytes)) + " free"
                            : "free memory unknown, so nothing is refused for its size");
  }
  return text + "Nothing was run. Memory is tensors, saved state and scratch; time is one launch.\n";
}

int dry_run_verb(const SweepOptions& options) {
  const auto devices = find_candidates(options.devices);
  if (!devices) {
    std::fprintf(stderr, "error: %s\n", devices.error().message.c_str());
    return base::exit_code_of(devices.error().kind);
  }
  const auto plan = plan::make_plan(options, *devices);
  if (!plan) {
    std::fprintf(stderr, "error: %s\n", plan.error().message.c_str());
    return base::exit_code_of(plan.error().kind);
  }
  std::fputs(plan_table(*plan, options, *devices).c_str(), stdout);
  return base::exit_code::kOk;
}

}  // namespace attnbench::cli
