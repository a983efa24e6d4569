// Memory by sums that the contract defines; time by nominal rates, which only an ETA may rest on.
#include "bench/plan/predict.hpp"

#include <algorithm>

#include "bench/base/saturate.hpp"
#include "kernels/device/cpu_device.hpp"
#include "kernels/oracle/cost.hpp"
#include "kernels/work.hpp"

namespace attnbench::plan {
namespace {

using kernels::DeviceKind;
using kernels::Dtype;
using kernels::Pass;

constexpr double kWriteGbps = 5;              // a processor's core, writing lines that it has to fetch first
constexpr double kCudaGbps = 1500;            // an H100-class part
constexpr double kHostThreads = 8;            // beside a GPU, where the plan knows nothing of the host
constexpr double kOracleProductsPerUs = 2e3;  // of one thread, exponentials included
constexpr double kElementsPerUs = 50;         // drawn, copied and compared
constexpr double kLaunchesBefore = 2;         // the checked one, and a backward's forward

/// Nominal rates of a kernel: GFLOP/s and GB/s of the whole device.
struct Rates {
  double gflops = 1;
  double gbps = 10;
  double launch_us = 1;
};

/// CPU: per-thread rates of a 3 GHz core with 8-wide FMA (96 GFLOP/s): plain loops reach a fiftieth of it, a tuned
/// product a half; memory gives some 10 GB/s to a core. CUDA: per-multiprocessor rates of an H100-class part.
Rates nominal(const kernels::KernelInfo& kernel, const kernels::Problem& problem, const kernels::Target& target) {
  const bool plain = kernel.name == "naive";
  if (kernel.device == DeviceKind::kCpu) {
    const double threads = std::max(1, target.threads);
    const double per_thread = plain ? 2 : kernel.materialises ? 40 : 50;
    return {per_thread * threads, 10.0 * std::min(threads, 8.0), 2};
  }
  const double units = target.device != nullptr ? std::max(1, target.device->cores) : 1;
  const double per_unit = plain ? 10 : problem.dtype == Dtype::kFp32 ? 150 : 2500;
  return {per_unit * units, 20.0 * units, 5};
}

}  // namespace

std::uint64_t predicted_bytes(const kernels::KernelInfo& kernel, const kernels::Problem& problem, kernels::Pass pass,
                              const kernels::Target& target) {
  if (!kernels::is_countable(problem, kernel.materialises)) return base::kMostCount;
  const kernels::Footprint own = kernel.footprint(problem, pass, target);
  const Pass all = pass == Pass::kFwd ? Pass::kFwd : Pass::kFwdBwd;
  const kernels::Footprint whole = kernel.footprint(problem, all, target);
  return base::saturating_sum({kernels::tensor_bytes(problem, pass), std::max(own.saved_bytes, whole.saved_bytes),
                               std::max(own.workspace_bytes, whole.workspace_bytes)});
}

double nominal_bytes(const kernels::KernelInfo& kernel, const kernels::Problem& p, kernels::Pass pass) {
  const auto real = [](std::int64_t count) { return static_cast<double>(count); };
  const double rows = real(p.batch) * real(p.heads) * real(p.seq_q);
  const double elements = 2 * (rows + real(p.batch) * real(p.kv_heads) * real(p.seq_k)) * real(p.head_dim);
  const double tensors = elements * static_cast<double>(kernels::size_of(p.dtype)) * (pass == Pass::kFwd ? 1 : 2);
  return tensors + rows * 4 + (kernel.materialises ? rows * real(p.seq_k) * 4 : 0);
}

std::uint64_t flush_bytes(const kernels::DeviceFacts& facts, kernels::CacheState cache) {
  if (cache == kernels::CacheState::kHot) return 0;
  if (facts.kind != DeviceKind::kCpu) return 2 * facts.last_level_cache_bytes;
  return kernels::cpu_flush_bytes(facts.last_level_cache_bytes, facts.memory_free_bytes);
}

std::uint64_t harness_bytes(const kernels::DeviceFacts& facts, const kernels::Problem& p, kernels::Pass pass,
                            kernels::CacheState cache) {
  const std::uint64_t flush = flush_bytes(facts, cache);
  if (facts.kind != DeviceKind::kCpu || !kernels::is_countable(p, false)) return flush;
  const std::uint64_t query = base::saturating_product({p.batch, p.heads, p.seq_q, p.head_dim});
  const std::uint64_t key = base::saturating_product({p.batch, p.kv_heads, p.seq_k, p.head_dim});
  const std::uint64_t rows = base::saturating_product({p.batch, p.heads, p.seq_q});
  const bool forward = pass != Pass::kBwd;
  const bool backward = pass != Pass::kFwd;
  const std::uint64_t inputs = query + 2 * key + (backward ? query : 0);
  const std::uint64_t outputs = (forward ? query : 0) + (backward ? query + 2 * key : 0);
  // The oracle's results are doubles: all of them, or the heads around one key head while sampled keys are computed.
  std::uint64_t doubles = query + rows + (backward ? query + 2 * key : 0);
  if (!kernels::is_checked_in_full(p, pass)) {
    doubles = backward ? 2 * (key / static_cast<std::uint64_t>(p.batch * p.kv_heads)) +
                             (2 * query + 3 * rows) / static_cast<std::uint64_t>(p.batch * p.kv_heads)
                       : 0;
  }
  return flush + (inputs + outputs) * kernels::size_of(p.dtype) + (forward ? 4 * rows : 0) + 8 * doubles;
}

double predicted_time_us(const kernels::KernelInfo& kernel, const kernels::Problem& problem, kernels::Pass pass,
                         const kernels::Target& target) {
  const Rates rates = nominal(kernel, problem, target);
  const double flops = kernels::hardware_flops(problem, pass, kernel.materialises);
  const double bytes = kernels::model_bytes(problem, pass, kernel.materialises);
  // 1 GFLOP/s is 1e3 FLOP per microsecond, 1 GB/s is 1e3 bytes per microsecond.
  return rates.launch_us + std::max(flops / (rates.gflops * 1e3), bytes / (rates.gbps * 1e3));
}

double flush_time_us(const kernels::DeviceFacts& facts, kernels::CacheState cache) {
  const double gbps = facts.kind == DeviceKind::kCpu ? kWriteGbps * std::min(std::max(1, facts.cores), 8) : kCudaGbps;
  return static_cast<double>(flush_bytes(facts, cache)) / (gbps * 1e3);
}

double check_time_us(const kernels::DeviceFacts& facts, const kernels::Problem& p, kernels::Pass pass) {
  const double threads = facts.kind == DeviceKind::kCpu ? std::max(1, facts.cores) : kHostThreads;
  double products = kernels::oracle_cost(p, pass);
  if (!kernels::is_checked_in_full(p, pass)) {
    products = kernels::kReferenceBudget;
    if (pass != Pass::kFwd) {
      const double head = kernels::oracle_head_cost(p);
      products += p.causal ? std::min(head, kernels::kHeadBudget) : head;
    }
  }
  const double elements = static_cast<double>(kernels::tensor_bytes(p, pass)) / static_cast<double>(size_of(p.dtype));
  return products / (threads * kOracleProductsPerUs) + elements / kElementsPerUs;
}

Duration predicted_duration(const Plan& plan, const cli::Sampling& sampling) {
  Duration duration;
  for (const Point& point : plan.points) {
    double check_us = 0;
    for (const Case& c : point.cases) {
      if (!c.refused_status.empty()) continue;
      check_us = std::max(check_us, c.predicted_check_us);
      const double sample_s = (c.predicted_time_us + c.predicted_flush_us) * 1e-6;
      const double before_s =
          kLaunchesBefore * c.predicted_time_us * 1e-6 + (sampling.sustained ? cli::kSustainedS : 0);
      const double least_s = sampling.samples_min * sample_s;
      duration.least_s += before_s + std::max(least_s, std::min(sampling.time_min_s, sampling.time_limit_s));
      duration.most_s += before_s + std::max(least_s, sampling.time_limit_s);
    }
    duration.least_s += check_us * 1e-6;
    duration.most_s += check_us * 1e-6;
  }
  return duration;
}

std::optional<std::uint64_t> available_bytes(const kernels::DeviceFacts& facts) {
  if (facts.memory_free_bytes == 0) return std::nullopt;
  return facts.memory_free_bytes;
}

}  // namespace attnbench::plan
