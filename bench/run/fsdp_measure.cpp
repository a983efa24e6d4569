// Steps of one rank, timed; the ranks then tell each other their times.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "bench/base/rng.hpp"
#include "bench/run/fsdp_case.hpp"
#include "fsdp/numbers.hpp"
#include "kernels/catalog.hpp"

namespace attnbench::run {
namespace {

using base::Result;
using fsdp::StepTimes;

constexpr std::size_t kTimes = 6 + fsdp::kCauses;  // numbers of StepTimes

/// Resident memory of this process; empty where /proc does not say.
std::optional<std::int64_t> resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return std::nullopt;
  long long size = 0, resident = 0;
  const int read = std::fscanf(file, "%lld %lld", &size, &resident);
  std::fclose(file);
  if (read != 2) return std::nullopt;
  return static_cast<std::int64_t>(resident) * sysconf(_SC_PAGESIZE);
}

/// What is taken: of the host by this process, of a GPU by anybody.
struct Memory {
  std::optional<std::int64_t> host;
  std::int64_t device = 0;
};

Memory memory_of(const kernels::Device& device) {
  const auto taken = device.facts().memory_total_bytes - device.memory_free_bytes();
  return {resident_bytes(), static_cast<std::int64_t>(taken)};
}

std::array<double, kTimes> numbers_of(const StepTimes& times) {
  std::array<double, kTimes> numbers{times.total_s,     times.forward_s, times.backward_s,
                                     times.optimizer_s, times.pack_s,    times.numbers_s};
  std::copy(times.stalls_s.begin(), times.stalls_s.end(), numbers.begin() + 6);
  return numbers;
}

StepTimes times_of(const double* numbers) {
  StepTimes times{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], {}};
  std::copy_n(numbers + 6, fsdp::kCauses, times.stalls_s.begin());
  return times;
}

/// Random tokens of one rank; the same in every step.
struct Data {
  std::vector<std::int32_t> tokens, targets;
  std::vector<fsdp::TokenBatch> batches;

  Data(const FsdpCase& c, int rank) {
    const base::Rng rng(c.seed, 1000 + static_cast<std::uint64_t>(rank));
    const auto vocab = static_cast<std::uint64_t>(c.model.vocab);
    const std::int64_t count = c.tokens.tokens() * c.engine.micro_batches;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      tokens.push_back(static_cast<std::int32_t>(rng.bits(2 * index) % vocab));
      targets.push_back(static_cast<std::int32_t>(rng.bits(2 * index + 1) % vocab));
    }
    for (int micro = 0; micro < c.engine.micro_batches; ++micro) {
      const auto offset = static_cast<std::size_t>(micro * c.tokens.tokens());
      batches.push_back({tokens.data() + offset, targets.data() + offset});
    }
  }
};

/// Of each step the times of the slowest rank, and totals with times averaged over ranks.
Result<void> gather_measurement(fsdp::Communicator& communicator, const std::vector<StepTimes>& mine,
                                FsdpMeasurement& result) {
  std::vector<double> numbers;
  for (const StepTimes& times : mine) {
    const auto step = numbers_of(times);
    numbers.insert(numbers.end(), step.begin(), step.end());
  }
  for (const fsdp::CollectiveTotals& totals : result.totals) {
    numbers.push_back(totals.busy_s);
    numbers.push_back(totals.waited_s);
  }
  const auto all = fsdp::share_numbers(communicator, numbers);
  if (!all) return tl::unexpected(all.error());
  const auto ranks = static_cast<std::size_t>(communicator.world().size);
  for (std::size_t step = 0; step < mine.size(); ++step) {
    const double* slowest = all->data() + step * kTimes;
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      const double* const other = all->data() + rank * numbers.size() + step * kTimes;
      if (other[0] > slowest[0]) slowest = other;
    }
    result.steps.push_back(times_of(slowest));
  }
  for (std::size_t kind = 0; kind < result.totals.size(); ++kind) {
    fsdp::CollectiveTotals& totals = result.totals[kind];
    totals.busy_s = totals.waited_s = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const double* const times = all->data() + rank * numbers.size() + mine.size() * kTimes + 2 * kind;
      totals.busy_s += times[0] / static_cast<double>(ranks);
      totals.waited_s += times[1] / static_cast<double>(ranks);
    }
  }
  return {};
}

Result<std::vector<StepTimes>> run_steps(const FsdpCase& c, fsdp::Engine& engine, fsdp::Communicator& communicator,
                                         FsdpMeasurement& result) {
  const Data data(c, communicator.world().rank);
  std::vector<StepTimes> measured;
  for (int step = 0; step < c.warmup + c.steps; ++step) {
    if (step == c.warmup) communicator.reset_totals();
    const auto report = engine.step(data.batches);
    if (!report) return tl::unexpected(report.error());
    if (step == 0) result.first_step_s = report->times.total_s;
    result.loss = report->loss;
    if (step >= c.warmup) measured.push_back(report->times);
  }
  result.totals = communicator.totals();
  return measured;
}

}  // namespace

Result<FsdpMeasurement> measure_rank(const FsdpCase& c, kernels::Device& device, fsdp::Communicator& communicator) {
  const auto model = fsdp::make_model(c.model);
  if (!model) return tl::unexpected(model.error());
  FsdpMeasurement result;
  result.world = communicator.world();
  result.by_events = device.queues() != nullptr;
  const Memory before = memory_of(device);
  // Ranks of one process share their memory: none allocates before all have looked.
  if (const auto all = fsdp::share_numbers(communicator, {}); !all) return tl::unexpected(all.error());
  auto engine = fsdp::Engine::make(*model, c.tokens, c.engine, device, communicator);
  if (!engine) {
    communicator.abort(engine.error());
    return tl::unexpected(engine.error());
  }
  if (auto ok = (*engine)->initialize(c.seed); !ok) return tl::unexpected(ok.error());
  auto measured = run_steps(c, **engine, communicator, result);
  if (!measured) return tl::unexpected(measured.error());
  const Memory after = memory_of(device);
  if (auto ok = gather_measurement(communicator, *measured, result); !ok) return tl::unexpected(ok.error());
  const int here = result.world.transport == "local" ? result.world.size : 1;
  if (before.host && after.host) result.rss_growth_bytes = (*after.host - *before.host) / here;
  if (result.by_events) result.device_growth_bytes = (after.device - before.device) / here;
  result.flop = (*engine)->flop() * result.world.size;
  result.parameters = (*engine)->layout().parameters;
  result.memory = (*engine)->ledger();
  result.predicted = (*engine)->predicted();
  return result;
}

Result<std::size_t> predicted_bytes(const FsdpCase& c, std::string_view transport, kernels::Device& device) {
  const auto model = fsdp::make_model(c.model);
  if (!model) return tl::unexpected(model.error());
  // Threads add where the others' parts lie.
  const std::int64_t scratch_parts = transport == "local" ? 0 : std::max(transport == "nccl" ? 1 : 0, c.world - 1);
  const auto use = fsdp::Engine::predict(*model, c.tokens, c.engine, c.world, scratch_parts, device);
  if (!use) return tl::unexpected(use.error());
  return use->total();
}

std::unique_ptr<fsdp::Communicator> communicator_for(const FsdpCase& c, std::unique_ptr<fsdp::Transport> transport,
                                                     const fsdp::TransportOptions& options) {
  if (c.link) transport = fsdp::emulate_link(std::move(transport), *c.link);
  return fsdp::make_threaded(std::move(transport), options);
}

}  // namespace attnbench::run
