#include <gtest/gtest.h>

#include <thread>

#include "bench/run/fsdp_local.hpp"

namespace attnbench::run {
namespace {

FsdpCase small_case(int world, double deadline_s) {
  FsdpCase c;
  c.model.vocab = 50;
  c.model.layers = 2;
  c.model.block.width = 16;
  c.model.block.ff = 32;
  c.model.block.heads = 2;
  c.tokens = {2, 8};
  c.world = world;
  c.steps = 3;
  c.warmup = 1;
  c.transport.deadline_s = deadline_s;
  return c;
}

TEST(LocalWorld, EveryRankMeasuresTheSame) {
  const FsdpCase c = small_case(3, 30);
  std::mutex mutex;
  std::vector<FsdpMeasurement> all;
  const LocalEnd end = run_local_world(c, [&](int, kernels::Device& device, fsdp::Communicator& communicator) {
    const auto measured = measure_rank(c, device, communicator);
    const std::scoped_lock lock(mutex);
    if (measured) all.push_back(*measured);
    return measured ? base::Result<void>() : base::Result<void>(tl::unexpected(measured.error()));
  });
  ASSERT_TRUE(end.result) << end.result.error().message;
  EXPECT_FALSE(end.stuck);
  ASSERT_EQ(all.size(), 3u);
  for (const FsdpMeasurement& measured : all) {
    ASSERT_EQ(measured.steps.size(), 3u);
    EXPECT_EQ(measured.loss, all[0].loss);
    EXPECT_EQ(measured.memory, measured.predicted);
    EXPECT_GT(measured.first_step_s, 0);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(measured.steps[i].total_s, all[0].steps[i].total_s);
    // Gathers: 4 layers in the forward; the 3 whose backward reads weights are still there. A reduction for each layer.
    EXPECT_EQ(measured.totals[static_cast<std::size_t>(fsdp::CollectiveKind::kAllGather)].count, 3 * 4);
    EXPECT_EQ(measured.totals[static_cast<std::size_t>(fsdp::CollectiveKind::kReduceScatter)].count, 3 * 4);
  }
}

TEST(LocalWorld, ARankThatHangsIsNamedAndLeftBehind) {
  const FsdpCase c = small_case(2, 0.3);
  const auto begin = fsdp::Clock::now();
  const LocalEnd end = run_local_world(
      c, [c](int rank, kernels::Device& device, fsdp::Communicator& communicator) -> base::Result<void> {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(20));
        const auto measured = measure_rank(c, device, communicator);
        if (!measured) return tl::unexpected(measured.error());
        return {};
      });
  EXPECT_TRUE(end.stuck);
  EXPECT_LT(fsdp::Clock::now() - begin, std::chrono::seconds(10));
  ASSERT_FALSE(end.result);
  EXPECT_NE(end.result.error().message.find("rank 1 did not come to the exchange"), std::string::npos)
      << end.result.error().message;
}

// Memory as the system sees it, on a model whose arena is most of the process: within 10 % of the formula.
TEST(LocalWorld, ResidentMemoryGrowsByWhatTheFormulaSays) {
#ifdef ATTNBENCH_SANITIZED
  GTEST_SKIP() << "sanitizers keep memory of their own";
#endif
  FsdpCase c = small_case(2, 120);
  c.model.vocab = 4000;
  c.model.layers = 4;
  c.model.block.width = 512;
  c.model.block.ff = 1024;
  c.model.block.heads = 8;
  c.tokens = {1, 32};
  c.steps = 1;
  std::optional<FsdpMeasurement> seen;
  const LocalEnd end = run_local_world(
      c, [&](int rank, kernels::Device& device, fsdp::Communicator& communicator) -> base::Result<void> {
        auto measured = measure_rank(c, device, communicator);
        if (!measured) return tl::unexpected(measured.error());
        if (rank == 0) seen = std::move(*measured);
        return {};
      });
  ASSERT_TRUE(end.result) << end.result.error().message;
  ASSERT_TRUE(seen && seen->rss_growth_bytes);
  const auto predicted = static_cast<double>(seen->predicted.total());
  EXPECT_GT(predicted, 1e8);
  EXPECT_NEAR(static_cast<double>(*seen->rss_growth_bytes) / predicted, 1.0, 0.1);
}

}  // namespace
}  // namespace attnbench::run
