// The only file that sees Google Benchmark.
#include "bench/measure/gbench_adapter.hpp"

#include <benchmark/benchmark.h>

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

}  // namespace

int run_gbench(const std::string& program, const std::vector<std::string>& arguments,
               const std::vector<GbenchCase>& cases, const std::vector<std::pair<std::string, std::string>>& context,
               const std::function<bool()>& interrupted) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  int count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return base::exit_code::kUsage;
  for (const auto& [key, value] : context) benchmark::AddCustomContext(key, value);
  bool all_right = true;
  for (const GbenchCase& entry : cases) {
    benchmark::RegisterBenchmark(
        entry.name.c_str(),
        [&](benchmark::State& state) { all_right = run_case(state, entry, interrupted) && all_right; })
        ->UseManualTime()
        ->Iterations(entry.iterations)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return all_right ? base::exit_code::kOk : base::exit_code::kRowFailed;
}

}  // namespace attnbench::measure
