// The rate of fused multiply-adds that this machine reaches with registers alone: the ceiling of every fp32 product.
#pragma once

#include <string>

#include "kernels/device/thread_pool.hpp"

namespace attnbench::kernels {

struct FmaPeak {
  double gflops = 0;  // all threads of the pool together; multiply and add counted
  std::string isa;    // instruction set the chains ran on: AVX2, AVX3, NEON, ...
};

/// Runs independent chains of vector fused multiply-adds on every thread of the pool for about `seconds` (host clock)
/// and returns the median of its windows. Sets without a fused instruction multiply, then add, and count the same.
///
/// Needs   the machine to itself: a busy neighbour lowers the figure, nothing raises it
/// Memory  none beside a few counters
FmaPeak measure_fma_peak(ThreadPool& pool, double seconds);

}  // namespace attnbench::kernels
