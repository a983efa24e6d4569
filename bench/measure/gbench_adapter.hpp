// Cases as a Google Benchmark program: its flags, its console, its JSON, our clock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/base/error.hpp"

namespace attnbench::measure {

/// A case that is ready to be timed, or why it is not.
struct GbenchSession {
  std::string error;                                       // not empty: the benchmark is skipped with it
  std::string label;                                       // shown beside the times
  std::function<base::Result<double>()> take_us;           // one sample, microseconds
  std::vector<std::pair<std::string, double>> per_launch;  // shown per second, so named by it
  std::vector<std::pair<std::string, double>> plain;       // shown as they are
};

struct GbenchCase {
  std::string name;
  std::int64_t iterations = 1;  // always set: with manual time the library's own search for a number may never end
  std::function<GbenchSession()> open;  // called when the library gets to it, so that listing touches no device
};

/// What --benchmark_min_time or BENCHMARK_MIN_TIME says, which the library itself passes over where iterations are set.
/// Nothing for a value that it will refuse.
std::optional<double> asked_min_time_s(const std::vector<std::string>& arguments);

/// Hands the cases and the library's own flags to Google Benchmark. Returns the exit code: 0, kUsage for a flag or a
/// value that it does not know and for a filter that no case matches, kRowFailed when a case ended in an error or
/// --benchmark_out cannot be written. May end the program by itself: after the library's help, and with kUsage where
/// the library would print its help for a wrong value and leave with 0.
///
/// `interrupted` is asked before every case and every sample. From when it says so, the case in flight and those after
/// it are errors (the library has no way to leave them out), and what was measured is printed and written as ever.
int run_gbench(const std::string& program, const std::vector<std::string>& arguments,
               const std::vector<GbenchCase>& cases, const std::vector<std::pair<std::string, std::string>>& context,
               const std::function<bool()>& interrupted);

}  // namespace attnbench::measure
