#include "bench/measure/gbench_adapter.hpp"

#include <benchmark/benchmark.h>

namespace attnbench::measure {
namespace {

/// True when an error skipped the benchmark.
bool run_one(benchmark::State& state, const GbenchEntry& entry) {
  base::Result<void> outcome = entry.open();
  if (!outcome) {
    state.SkipWithError(outcome.error().message.c_str());
  } else {
    for ([[maybe_unused]] auto iteration : state) {
      const auto time_us = entry.sample_us();
      if (!time_us) {
        outcome = tl::unexpected(time_us.error());
        state.SkipWithError(time_us.error().message.c_str());
        break;
      }
      state.SetIterationTime(*time_us * 1e-6);
    }
  }
  entry.close();
  if (!outcome) return true;
  using benchmark::Counter;
  state.counters["tflops"] = Counter(entry.flops * 1e-12, Counter::kIsIterationInvariantRate);
  state.counters["gbps"] = Counter(entry.bytes * 1e-9, Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(static_cast<std::int64_t>(entry.bytes) * static_cast<std::int64_t>(state.iterations()));
  return false;
}

}  // namespace

base::Result<int> run_gbench(std::span<const GbenchEntry> entries, const std::string& program,
                             const std::vector<std::string>& arguments) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  benchmark::Initialize(&argc, argv.data());
  if (argc > 1) {
    return base::fail(base::ErrorKind::kUsage,
                      std::string("Google Benchmark does not know ") + argv[1] +
                          "; its flags start with --benchmark_, see attnbench gbench -- --help");
  }
  int errors = 0;
  for (const GbenchEntry& entry : entries) {
    benchmark::RegisterBenchmark(
        entry.name.c_str(), [&entry, &errors](benchmark::State& state) { errors += run_one(state, entry) ? 1 : 0; })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(entry.iterations);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();  // the entries may go before the library does
  benchmark::Shutdown();
  return errors;
}

}  // namespace attnbench::measure
