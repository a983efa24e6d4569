// A step allocates nothing: every operator new of the process is counted while steps run on two ranks.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <new>

#include "kernels/device/cpu_device.hpp"
#include "toy.hpp"

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
}  // namespace

// Not inlined: a compiler that sees into one of a pair takes it for a mismatch of the two.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace attnbench::fsdp {
namespace {

TEST(Allocation, ASecondStepAllocatesNothing) {
  for (const Strategy strategy : {Strategy::kFsdp, Strategy::kShardGradOp, Strategy::kDdp}) {
    for (const Dtype reduce : {Dtype::kFp32, Dtype::kBf16}) {
      const Model model = tests::toy_model({}, true);
      std::barrier together(2);
      tests::expect_world(2, {}, [&](int rank, Communicator& communicator) -> base::Result<void> {
        kernels::CpuDevice device(1);
        EngineOptions options;
        options.strategy = strategy;
        options.param_dtype = Dtype::kBf16;
        options.reduce_dtype = reduce;
        options.micro_batches = 2;
        options.clip_norm = 1;
        options.accumulation = strategy == Strategy::kDdp ? Accumulation::kUnsharded : Accumulation::kSharded;
        auto engine = Engine::make(model, {1, 5}, options, device, communicator);
        if (!engine) return tl::unexpected(engine.error());
        if (auto ok = (*engine)->initialize(1); !ok) return ok;
        const tests::Tokens tokens = tests::random_tokens(1, 2, 5, 11);
        const std::vector<TokenBatch> batches{tokens.rows(0, {1, 5}), tokens.rows(1, {1, 5})};
        for (int step = 0; step < 4; ++step) {
          together.arrive_and_wait();
          if (rank == 0) counting = step > 0;
          together.arrive_and_wait();
          const auto report = (*engine)->step(batches);
          together.arrive_and_wait();
          if (rank == 0) counting = false;
          if (!report) return tl::unexpected(report.error());
        }
        return {};
      });
    }
  }
  EXPECT_EQ(allocations.load(), 0);
}

}  // namespace
}  // namespace attnbench::fsdp
