// What is known of a case before it runs: memory, order of magnitude of time, whether it fits. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "bench/plan/plan.hpp"

namespace attnbench::plan {

/// Bytes that will be allocated at the peak of a case: every tensor, what forward saves for backward, and the scratch.
/// A backward is preceded by one forward on the same buffers, so what is saved and the scratch are the larger of the
/// two.
std::uint64_t predicted_bytes(const kernels::KernelInfo& kernel, const kernels::Problem& problem, kernels::Pass pass,
                              const kernels::Target& target);

/// Bytes that the harness holds beside a case on this device: the buffer that empties the cache before cold samples,
/// twice the last-level cache.
std::uint64_t reserved_bytes(const kernels::DeviceFacts& facts, kernels::CacheState cache);

/// Time of one launch at nominal rates, within a factor of a few. Units: microseconds.
double predicted_time_us(const kernels::KernelInfo& kernel, const kernels::Problem& problem, kernels::Pass pass,
                         const kernels::Target& target);

/// Free bytes that a plan may count on; empty where the device does not say.
std::optional<std::uint64_t> available_bytes(const kernels::DeviceFacts& facts);

}  // namespace attnbench::plan
