// Planned cases as a Google Benchmark program. The library's headers stay behind this file's source.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/base/error.hpp"

namespace attnbench::measure {

/// One benchmark. `open` allocates, checks and warms up; it is called when the benchmark's turn comes, so that nothing
/// of the others is resident, and `close` gives everything back.
struct GbenchEntry {
  std::string name;
  /// Fixed before the run: with manual time the library would otherwise guess a count from processor time, and may
  /// never end.
  std::int64_t iterations = 1;
  double flops = 0;  // of one iteration
  double bytes = 0;
  std::function<base::Result<void>()> open;
  std::function<base::Result<double>()> sample_us;  // one iteration, microseconds
  std::function<void()> close;
};

/// Registers the entries with manual time and runs what the arguments select; the library prints. Counters: flops per
/// second as `tflops` (in 1e12), bytes per second as `gbps` (in 1e9) and the library's own bytes_per_second. An entry
/// that reports an error is skipped with its sentence.
///
/// Returns  how many entries reported an error
/// Errors   kUsage: an argument that Google Benchmark does not know
base::Result<int> run_gbench(std::span<const GbenchEntry> entries, const std::string& program,
                             const std::vector<std::string>& arguments);

}  // namespace attnbench::measure
