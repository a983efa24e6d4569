// The FMA probe: a rate is positive, finite and named. How high it is depends on the machine and is not a test.
#include "kernels/lab/cpu/fma_peak.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace attnbench::kernels {
namespace {

TEST(FmaPeak, IsAPositiveRateOfANamedInstructionSet) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    const FmaPeak peak = measure_fma_peak(pool, 0.0);
    EXPECT_TRUE(std::isfinite(peak.gflops));
    EXPECT_GT(peak.gflops, 0.0);
    EXPECT_FALSE(peak.isa.empty());
  }
}

}  // namespace
}  // namespace attnbench::kernels
