// What is known of a case before it runs, against numbers computed by hand.
#include <gtest/gtest.h>

#include "bench/plan/predict.hpp"

namespace attnbench::plan {
namespace {

using kernels::DeviceKind;
using kernels::Pass;
using kernels::Problem;

TEST(Predict, TheHarnessCountsItsOwnCopiesOnTheProcessor) {
  Problem p;
  p.batch = 8;
  p.seq_q = p.seq_k = 65536;
  p.head_dim = 64;
  p.causal = true;
  kernels::DeviceFacts facts;
  facts.kind = DeviceKind::kCpu;
  facts.memory_free_bytes = std::uint64_t{1} << 30;
  facts.last_level_cache_bytes = std::uint64_t{1} << 20;
  const std::uint64_t tensor = std::uint64_t{8} * 65536 * 64 * 4;
  const std::uint64_t lse = std::uint64_t{8} * 65536 * 4;
  const std::uint64_t flush = std::uint64_t{64} << 20;
  EXPECT_EQ(flush_bytes(facts, kernels::CacheState::kCold), flush);
  EXPECT_EQ(harness_bytes(facts, p, Pass::kFwd, kernels::CacheState::kCold), flush + 3 * tensor + tensor + lse);
  EXPECT_EQ(harness_bytes(facts, p, Pass::kFwd, kernels::CacheState::kHot), 3 * tensor + tensor + lse);
  // Backward: q, k, v, dout; dq, dk, dv; and one head of q, k, v, dout and three statistics a row in double precision.
  EXPECT_EQ(harness_bytes(facts, p, Pass::kBwd, kernels::CacheState::kHot),
            4 * tensor + 3 * tensor + tensor + 6 * lse / 8);
  // A GPU has memory of its own: two of its caches.
  facts.kind = DeviceKind::kCuda;
  EXPECT_EQ(harness_bytes(facts, p, Pass::kFwd, kernels::CacheState::kCold), std::uint64_t{2} << 20);
}

TEST(Predict, TheDurationHasFlushesFirstLaunchesAndOneCheckAPoint) {
  Case c;
  c.predicted_time_us = 1e6;
  c.predicted_flush_us = 5e5;
  c.predicted_check_us = 2e6;
  Plan plan;
  plan.points.resize(1);
  plan.points[0].cases = {c, c};
  c.refused_status = "unsupported";
  plan.points[0].cases.push_back(c);
  cli::Sampling sampling;
  sampling.samples_min = 3;
  sampling.time_min_s = 0.2;
  sampling.time_limit_s = 10;
  const Duration duration = predicted_duration(plan, sampling);
  EXPECT_DOUBLE_EQ(duration.least_s, 2 * (2 * 1 + 3 * 1.5) + 2);
  EXPECT_DOUBLE_EQ(duration.most_s, 2 * (2 * 1 + 10) + 2);
}

}  // namespace
}  // namespace attnbench::plan
