// Fills the columns of a training row.
#include "bench/run/fsdp_row.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/base/stats.hpp"
#include "bench/base/version.hpp"

namespace attnbench::run {
namespace {

using fsdp::Category;
using fsdp::Cause;
using fsdp::CollectiveKind;
using fsdp::StepTimes;

std::string text(std::string_view view) { return std::string(view); }

/// Median over steps, in microseconds.
template <typename Part>
std::optional<double> median_us(const FsdpMeasurement& measured, const Part& part) {
  std::vector<double> values;
  for (const StepTimes& times : measured.steps) values.push_back(part(times) * 1e6);
  return base::median(values);
}

void add_samples(reports::Row& row, const FsdpMeasurement& measured) {
  for (const StepTimes& times : measured.steps) row.sample_times_us.push_back(times.total_s * 1e6);
  const base::Summary summary = base::summarize(row.sample_times_us);
  row.samples = summary.count;
  row.stop_reason = "steps";
  row.timing = "wall";  // of a step; its split is a GPU's events where it runs on one
  row.time_us_median = summary.median;
  row.time_us_mean = summary.mean;
  row.time_us_min = summary.min;
  row.time_us_max = summary.max;
  row.time_us_q1 = summary.q1;
  row.time_us_q3 = summary.q3;
  row.time_us_p95 = summary.p95;
  row.time_us_p99 = summary.p99;
  row.spread_pct = summary.spread_pct;
  if (summary.median_ci) {
    row.time_us_ci_low = summary.median_ci->low;
    row.time_us_ci_high = summary.median_ci->high;
  }
  if (summary.outliers) {
    row.outliers_mild = summary.outliers->mild;
    row.outliers_severe = summary.outliers->severe;
  }
}

void add_split(reports::Row& row, const FsdpMeasurement& m) {
  row.first_step_us = m.first_step_s * 1e6;
  row.forward_us = median_us(m, [](const StepTimes& t) { return t.forward_s; });
  row.backward_us = median_us(m, [](const StepTimes& t) { return t.backward_s; });
  row.optimizer_us = median_us(m, [](const StepTimes& t) { return t.optimizer_s; });
  if (!m.by_events) row.pack_us = median_us(m, [](const StepTimes& t) { return t.pack_s; });
  row.exchange_us = median_us(m, [](const StepTimes& t) { return t.numbers_s; });
  row.exposed_us = median_us(m, [](const StepTimes& t) { return t.exposed_s(); });
  row.exposed_forward_gather_us = median_us(m, [](const StepTimes& t) { return t.stall(Cause::kForwardGather); });
  row.exposed_backward_gather_us = median_us(m, [](const StepTimes& t) { return t.stall(Cause::kBackwardGather); });
  row.exposed_reduce_us = median_us(m, [](const StepTimes& t) { return t.stall(Cause::kReduce); });
  row.first_gather_us = median_us(m, [](const StepTimes& t) { return t.stall(Cause::kFirstGather); });
  row.last_reduce_us = median_us(m, [](const StepTimes& t) { return t.stall(Cause::kLastReduce); });
}

/// Bytes and bandwidth of one kind of collective; nothing on one rank, which has none.
struct Bandwidth {
  reports::Number bytes, us, algbw, busbw;
};

Bandwidth bandwidth_of(const fsdp::CollectiveTotals& totals, double bus_factor) {
  if (totals.count == 0 || totals.bytes == 0) return {};
  const double count = static_cast<double>(totals.count);
  const double bytes = static_cast<double>(totals.bytes) / count, us = totals.busy_s * 1e6 / count;
  if (!(us > 0)) return {bytes, us, {}, {}};
  // Bytes per microsecond are 1e-3 GB/s.
  return {bytes, us, bytes / us * 1e-3, bytes / us * 1e-3 * bus_factor};
}

void add_communication(reports::Row& row, const FsdpMeasurement& m) {
  if (m.world.size == 1) return;
  const double peers = m.world.size - 1, ranks = m.world.size;
  const auto totals = [&](CollectiveKind kind) { return m.totals[static_cast<std::size_t>(kind)]; };
  const bool all_reduce = totals(CollectiveKind::kAllReduce).count > 0;
  const Bandwidth gather = bandwidth_of(totals(CollectiveKind::kAllGather), peers / ranks);
  const Bandwidth reduce = all_reduce ? bandwidth_of(totals(CollectiveKind::kAllReduce), 2 * peers / ranks)
                                      : bandwidth_of(totals(CollectiveKind::kReduceScatter), peers / ranks);
  row.gather_bytes = gather.bytes;
  row.gather_us = gather.us;
  row.gather_algbw_gbps = gather.algbw;
  row.gather_busbw_gbps = gather.busbw;
  row.reduce_bytes = reduce.bytes;
  row.reduce_us = reduce.us;
  row.reduce_algbw_gbps = reduce.algbw;
  row.reduce_busbw_gbps = reduce.busbw;
  double busy_s = 0, waited_s = 0;
  for (const fsdp::CollectiveTotals& kind : m.totals) {
    busy_s += kind.busy_s;
    waited_s += kind.waited_s;
  }
  const double steps = static_cast<double>(std::max<std::size_t>(1, m.steps.size()));
  row.communication_us = busy_s * 1e6 / steps;
  row.skew_us = waited_s * 1e6 / steps;
}

void add_memory(reports::Row& row, const FsdpMeasurement& m) {
  const auto bytes = [&](std::initializer_list<Category> categories) {
    std::size_t sum = 0;
    for (const Category category : categories) sum += m.memory[category];
    return static_cast<std::int64_t>(sum);
  };
  row.peak_bytes = static_cast<std::int64_t>(m.memory.total());
  row.predicted_bytes = static_cast<std::int64_t>(m.predicted.total());
  row.memory_weights_bytes = bytes({Category::kMaster});
  row.memory_optimizer_bytes = bytes({Category::kOptimizer});
  row.memory_gradient_shard_bytes = bytes({Category::kGradShard});
  row.memory_gathered_bytes = bytes({Category::kGathered});
  row.memory_gradients_bytes = bytes({Category::kGradients});
  row.memory_communication_bytes = bytes({Category::kReduce, Category::kScratch});
  row.memory_activations_bytes =
      bytes({Category::kSaved, Category::kActivations, Category::kWorkspace, Category::kInputs});
  row.rank_rss_bytes = m.rss_growth_bytes;
  row.peak_device_bytes = m.device_growth_bytes;
}

void add_provenance(reports::Row& row, const kernels::DeviceFacts& device, const Provenance& provenance) {
  row.run_id = provenance.run_id;
  row.command = provenance.command;
  row.seed = static_cast<std::int64_t>(provenance.seed);
  row.host = provenance.host.host;
  row.os = provenance.host.os;
  row.governor = provenance.host.governor;
  row.device = device.id;
  row.device_name = device.name;
  if (device.cores > 0) row.cores = device.cores;
  row.isa = device.isa;
  row.driver = device.driver;
  row.libraries = libraries_text(device);
  row.fingerprint = fingerprint(provenance.host, device);
  const base::BuildInfo& build = base::build_info();
  row.commit = text(build.commit);
  row.version = text(build.version);
  row.compiler = text(build.compiler);
  row.flags = text(build.flags);
}

}  // namespace

reports::Row describe_fsdp(const FsdpCase& c, const kernels::DeviceFacts& device, const Provenance& provenance) {
  reports::Row row;
  add_provenance(row, device, provenance);
  row.key = c.key;
  row.kernel = "fsdp";
  row.variant = text(fsdp::to_string(c.engine.strategy));
  row.strategy = row.variant;
  row.pass = "step";
  row.model = c.model.name;
  row.dtype = text(kernels::to_string(c.engine.param_dtype));
  row.reduce_dtype = text(kernels::to_string(c.engine.reduce_dtype));
  row.causal = 1;
  row.batch = c.tokens.batch;
  row.seq_len = c.tokens.seq;
  row.heads = c.model.block.heads;
  row.kv_heads = c.model.block.heads;
  row.d_model = c.model.block.width;
  row.head_dim = c.model.block.width / c.model.block.heads;
  row.threads = c.threads;
  row.link = c.link_text;
  row.world_size = c.world;
  row.prefetch = c.engine.prefetch;
  row.micro_batches = c.engine.micro_batches;
  row.checkpoint = c.engine.checkpoint ? 1 : 0;
  return row;
}

void add_measurement(reports::Row& row, const FsdpCase& c, const FsdpMeasurement& measured,
                     std::optional<double> gemm_peak_gflops) {
  row.transport = measured.world.transport;
  row.emulated = measured.world.emulated ? 1 : 0;
  row.time_shared = measured.world.time_shared ? 1 : 0;
  row.parameters = measured.parameters;
  row.loss = measured.loss;
  add_samples(row, measured);
  add_split(row, measured);
  add_communication(row, measured);
  add_memory(row, measured);
  row.flops_model = measured.flop;
  row.gemm_peak_gflops = gemm_peak_gflops;
  if (!row.time_us_median || !(*row.time_us_median > 0)) return;
  const double tokens = static_cast<double>(c.tokens.tokens()) * c.engine.micro_batches * c.world;
  row.tokens_per_s = tokens / (*row.time_us_median * 1e-6);
  row.tflops = measured.flop / *row.time_us_median * 1e-6;
  if (gemm_peak_gflops) row.gemm_pct = *row.tflops * 1e5 / *gemm_peak_gflops;
}

void add_scaling(reports::Row& row, const std::vector<reports::Row>& earlier) {
  const reports::Row* base = &row;
  for (const reports::Row& other : earlier) {
    reports::Row alike = other;
    alike.world_size = row.world_size;
    const bool same = alike.strategy == row.strategy && alike.model == row.model && alike.batch == row.batch &&
                      alike.seq_len == row.seq_len && alike.prefetch == row.prefetch && other.tokens_per_s.has_value();
    if (same && other.world_size < base->world_size) base = &other;
  }
  // Without a smaller world there is nothing to compare with, but one rank is where all others begin.
  if (!row.tokens_per_s || (base == &row && row.world_size != 1)) return;
  const double here = *row.tokens_per_s / static_cast<double>(*row.world_size);
  const double there = *base->tokens_per_s / static_cast<double>(*base->world_size);
  row.scaling_pct = 100 * (here / there);
}

}  // namespace attnbench::run
