// What is known of a case before it runs: memory, order of magnitude of time, whether it fits. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "bench/plan/plan.hpp"

namespace attnbench::plan {

/// Bytes that will be allocated at the peak of a case: every tensor, what forward saves for backward, and the scratch.
/// A backward is preceded by one forward on the same buffers, so what is saved and the scratch are the larger of the
/// two. base::kMostCount where that does not fit 64 bits, or the problem is not countable.
std::uint64_t predicted_bytes(const kernels::KernelInfo& kernel, const kernels::Problem& problem, kernels::Pass pass,
                              const kernels::Target& target);

/// Tensors, and scores where the kernel keeps them, in floating point: a size to name where predicted_bytes has none.
double nominal_bytes(const kernels::KernelInfo& kernel, const kernels::Problem& problem, kernels::Pass pass);

/// Bytes that the buffer takes that empties the cache before cold samples.
std::uint64_t flush_bytes(const kernels::DeviceFacts& facts, kernels::CacheState cache);

/// Bytes that the harness holds beside a case in the device's memory: the flush buffer and, where that memory is the
/// host's, inputs, results brought back, and what the oracle computes.
std::uint64_t harness_bytes(const kernels::DeviceFacts& facts, const kernels::Problem& problem, kernels::Pass pass,
                            kernels::CacheState cache);

/// Time of one launch at nominal rates, within a factor of a few. Units: microseconds.
double predicted_time_us(const kernels::KernelInfo& kernel, const kernels::Problem& problem, kernels::Pass pass,
                         const kernels::Target& target);

/// Time of one flush, and of the check of a case (inputs, oracle, comparison), at nominal rates.
double flush_time_us(const kernels::DeviceFacts& facts, kernels::CacheState cache);
double check_time_us(const kernels::DeviceFacts& facts, const kernels::Problem& problem, kernels::Pass pass);

/// From a row's least samples to its time limit, with flushes, the launches before the first sample, and the check once
/// a point; refused cases take no time.
struct Duration {
  double least_s = 0;
  double most_s = 0;
};
Duration predicted_duration(const Plan& plan, const cli::Sampling& sampling);

/// Free bytes that a plan may count on; empty where the device does not say.
std::optional<std::uint64_t> available_bytes(const kernels::DeviceFacts& facts);

}  // namespace attnbench::plan
