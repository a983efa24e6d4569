// The only file that sees Google Benchmark.
#include "bench/measure/gbench_adapter.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace attnbench::measure {
namespace {

/// Runs one case to the end of its iterations. True: no error.
bool run_case(benchmark::State& state, const GbenchCase& entry, const std::function<bool()>& interrupted) {
  if (interrupted()) {
    state.SkipWithError("not run: interrupted before it began");
    return false;
  }
  const GbenchSession session = entry.open();
  if (!session.error.empty()) {
    state.SkipWithError(session.error.c_str());
    return false;
  }
  std::string error;
  for (auto iteration : state) {
    static_cast<void>(iteration);
    if (interrupted()) {
      error = "interrupted while it was measured";
      state.SkipWithError(error.c_str());
      break;
    }
    const auto time_us = session.take_us();
    if (!time_us) {
      error = time_us.error().message;
      state.SkipWithError(error.c_str());
      break;
    }
    state.SetIterationTime(*time_us * 1e-6);
  }
  state.SetLabel(session.label);
  for (const auto& [name, value] : session.per_launch) {
    state.counters[name] = benchmark::Counter(value, benchmark::Counter::kIsIterationInvariantRate);
  }
  for (const auto& [name, value] : session.plain) state.counters[name] = benchmark::Counter(value);
  return error.empty();
}

/// The library knows no other way to say that a value is wrong than to print its help, after which it leaves with 0.
void refuse_value() {
  std::fputs(
      "error: a --benchmark_ flag has a value that Google Benchmark does not take (format and out_format are one "
      "of console, json, csv); see attnbench gbench -- --help\n",
      stderr);
  std::exit(base::exit_code::kUsage);
}

/// The last value of a flag of the library, else that of the variable that it reads too; empty when neither is.
std::string value_of(const std::vector<std::string>& arguments, std::string_view flag, const char* variable) {
  const char* const inherited = std::getenv(variable);
  std::string value = inherited != nullptr ? inherited : "";
  for (const std::string& argument : arguments) {
    if (argument.starts_with(flag)) value = argument.substr(flag.size());
  }
  return value;
}

/// The library itself leaves with 1 when it cannot open its file.
bool can_write(const std::string& path) {
  if (path.empty()) return true;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "ab"), &std::fclose);
  if (file) return true;
  std::fprintf(stderr, "error: --benchmark_out %s cannot be written: %s\n", path.c_str(), std::strerror(errno));
  return false;
}

}  // namespace

std::optional<double> asked_min_time_s(const std::vector<std::string>& arguments) {
  const std::string value = value_of(arguments, "--benchmark_min_time=", "BENCHMARK_MIN_TIME");
  char* end = nullptr;
  const double seconds = std::strtod(value.c_str(), &end);
  const bool whole = end != value.c_str() && *end == '\0';
  return whole && std::isfinite(seconds) && seconds >= 0 ? std::optional(seconds) : std::nullopt;
}

int run_gbench(const std::string& program, const std::vector<std::string>& arguments,
               const std::vector<GbenchCase>& cases, const std::vector<std::pair<std::string, std::string>>& context,
               const std::function<bool()>& interrupted) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  int count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  const bool help = std::find(arguments.begin(), arguments.end(), "--help") != arguments.end();
  benchmark::SetDefaultTimeUnit(benchmark::kMicrosecond);  // unless --benchmark_time_unit, which is read next
  benchmark::Initialize(&count, pointers.data(), help ? &benchmark::PrintDefaultHelp : &refuse_value);
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return base::exit_code::kUsage;
  if (!can_write(value_of(arguments, "--benchmark_out=", "BENCHMARK_OUT"))) return base::exit_code::kRowFailed;
  for (const auto& [key, value] : context) benchmark::AddCustomContext(key, value);
  bool all_right = true;
  for (const GbenchCase& entry : cases) {
    benchmark::RegisterBenchmark(
        entry.name.c_str(),
        [&](benchmark::State& state) { all_right = run_case(state, entry, interrupted) && all_right; })
        ->UseManualTime()
        ->Iterations(entry.iterations);
  }
  const std::size_t matched = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (matched == 0) {  // the library has said on standard error whether it is no expression or matches nothing
    std::fprintf(stderr, "error: --benchmark_filter %s leaves no case; see --benchmark_list_tests\n",
                 benchmark::GetBenchmarkFilter().c_str());
    return base::exit_code::kUsage;
  }
  return all_right ? base::exit_code::kOk : base::exit_code::kRowFailed;
}

}  // namespace attnbench::measure
