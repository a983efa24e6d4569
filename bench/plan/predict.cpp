// Memory by sums that the contract defines; time by nominal rates, which only an ETA may rest on.
#include "bench/plan/predict.hpp"

#include <algorithm>

#include "kernels/work.hpp"

namespace attnbench::plan {
namespace {

using kernels::DeviceKind;
using kernels::Dtype;

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
  using kernels::Pass;
  const kernels::Footprint own = kernel.footprint(problem, pass, target);
  const Pass all = pass == Pass::kFwd ? Pass::kFwd : Pass::kFwdBwd;
  const kernels::Footprint whole = kernel.footprint(problem, all, target);
  return kernels::tensor_bytes(problem, pass) + std::max(own.saved_bytes, whole.saved_bytes) +
         std::max(own.workspace_bytes, whole.workspace_bytes);
}

std::uint64_t reserved_bytes(const kernels::DeviceFacts& facts, kernels::CacheState cache) {
  return cache == kernels::CacheState::kCold ? 2 * facts.last_level_cache_bytes : 0;
}

double predicted_time_us(const kernels::KernelInfo& kernel, const kernels::Problem& problem, kernels::Pass pass,
                         const kernels::Target& target) {
  const Rates rates = nominal(kernel, problem, target);
  const double flops = kernels::hardware_flops(problem, pass, kernel.materialises);
  const double bytes = kernels::model_bytes(problem, pass, kernel.materialises);
  // 1 GFLOP/s is 1e3 FLOP per microsecond, 1 GB/s is 1e3 bytes per microsecond.
  return rates.launch_us + std::max(flops / (rates.gflops * 1e3), bytes / (rates.gbps * 1e3));
}

std::optional<std::uint64_t> available_bytes(const kernels::DeviceFacts& facts) {
  if (facts.memory_free_bytes == 0) return std::nullopt;
  return facts.memory_free_bytes;
}

}  // namespace attnbench::plan
