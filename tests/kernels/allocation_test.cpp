// A launch allocates nothing, and what a kernel keeps in host memory does not grow with the problem: operator new is
// replaced in this program, which counts while it is told to.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "kernel_case.hpp"
#include "kernels/device/cpu_device.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<std::int64_t> allocations{0};
std::atomic<std::int64_t> held_bytes{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  void* const data = alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__
                         ? std::malloc(bytes)
                         : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  if (counting.load(std::memory_order_relaxed)) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    held_bytes.fetch_add(static_cast<std::int64_t>(malloc_usable_size(data)), std::memory_order_relaxed);
  }
  return data;
}

void release(void* data) {
  if (data != nullptr && counting.load(std::memory_order_relaxed)) {
    held_bytes.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(data)), std::memory_order_relaxed);
  }
  std::free(data);
}

}  // namespace

// The other forms of new and delete call these.
void* operator new(std::size_t bytes) { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { release(data); }
void operator delete(void* data, std::size_t) noexcept { release(data); }
void operator delete(void* data, std::align_val_t) noexcept { release(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { release(data); }

namespace attnbench::kernels {
namespace {

struct Count {
  std::int64_t allocations, held_bytes;
};

/// Of all threads, while `body` runs.
template <typename Body>
Count count(const Body& body) {
  allocations.store(0);
  held_bytes.store(0);
  counting.store(true);
  body();
  counting.store(false);
  return {allocations.load(), held_bytes.load()};
}

/// A problem's tensors and what a kernel wants beside them, in memory of the device.
struct Bound {
  Bound(const KernelInfo& kernel, const Problem& p, CpuDevice& device)
      : inputs(random_inputs(p, 5)), results(p), args(args_of(p, Pass::kFwdBwd, inputs, results)) {
    const Footprint size = kernel.footprint(p, Pass::kFwdBwd, {&device.facts(), device.threads(), false});
    lse = std::move(*device.allocate(static_cast<std::size_t>(p.batch * p.heads * p.seq_q) * sizeof(float)));
    saved = std::move(*device.allocate(size.saved_bytes));
    workspace = std::move(*device.allocate(size.workspace_bytes));
    args.lse = static_cast<float*>(lse.data());
    args.saved = saved.data();
    args.workspace = workspace.data();
  }

  Inputs inputs;
  Results results;
  AttentionArgs args;
  Buffer lse, saved, workspace;
};

std::vector<Problem> problems(Dtype dtype) {
  const Problem small = make_problem(9, 9, 16, false, dtype);  // one item of work, and one block
  Problem grouped = make_problem(300, 310, 40, true, dtype);
  grouped.batch = 2;
  grouped.heads = 4;
  grouped.kv_heads = 2;
  Problem window = make_problem(130, 700, 64, false, dtype);
  window.window_left = 50;
  return {small, grouped, window};
}

class Allocations : public CpuKernel {
 protected:
  /// Of each pass of the first launch after prepare.
  void expect_none(const Problem& p, int threads) {
    SCOPED_TRACE(text_of(p) + ", threads " + std::to_string(threads));
    CpuDevice device(threads);
    const Bound bound(kernel(), p, device);
    auto prepared = prepare(kernel(), bound.args, Pass::kFwdBwd, device);
    ASSERT_TRUE(prepared) << prepared.error().message;
    for (const Pass pass : {Pass::kFwd, Pass::kBwd}) {
      base::Result<void> ok;
      const Count counted = count([&] { ok = launch(**prepared, pass); });
      ASSERT_TRUE(ok) << ok.error().message;
      EXPECT_EQ(counted.allocations, 0) << to_string(pass);
    }
  }
};

TEST(AllocationCount, SeesEveryThread) {
  ThreadPool pool(2);
  std::atomic<int> threads_seen{0};
  std::unique_ptr<std::vector<int>> made[2];
  const auto body = [&](std::int64_t item, int) {
    made[item] = std::make_unique<std::vector<int>>(100);
    ++threads_seen;
    while (threads_seen.load() < 2) std::this_thread::yield();  // so that each thread has an item
  };
  const Count counted = count([&] { pool.parallel_for(2, body); });
  EXPECT_EQ(counted.allocations, 4);
  EXPECT_GE(counted.held_bytes, 2 * 100 * static_cast<std::int64_t>(sizeof(int)));
  EXPECT_LE(count([&] { made[0] = nullptr; }).held_bytes, -100 * static_cast<std::int64_t>(sizeof(int)));
}

TEST_P(Allocations, ALaunchMakesNone) {
  // Each call of a product allocates inside oneDNN, which builds a context for it; the rest of that kernel is seen
  // below.
  if (kernel().name == "blas") GTEST_SKIP() << "oneDNN allocates in every call, and its calls are this kernel's work";
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    for (const Problem& p : problems(dtype)) {
      for (const int threads : {1, 3}) expect_none(p, threads);
    }
  }
}

TEST_P(Allocations, ALaunchThatHasNothingToMultiplyMakesNone) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    for (const bool causal : {false, true}) {
      Problem p = make_problem(200, 0, 32, causal, dtype);
      p.batch = 2;
      p.heads = p.kv_heads = 3;
      expect_none(p, 3);
    }
  }
}

TEST_P(Allocations, WhatPrepareKeepsDoesNotGrowWithTheProblem) {
  CpuDevice device(1);
  const auto kept = [&](std::int64_t batch) {
    Problem p = make_problem(40, 40, 16, true, Dtype::kFp32);
    p.batch = batch;
    const Bound bound(kernel(), p, device);
    base::Result<std::unique_ptr<PreparedKernel>> prepared;
    const std::int64_t bytes =
        count([&] { prepared = prepare(kernel(), bound.args, Pass::kFwdBwd, device); }).held_bytes;
    EXPECT_TRUE(prepared) << prepared.error().message;
    return bytes;
  };
  kept(1);  // what is made once, by a library
  const std::int64_t of_one = kept(1);
  EXPECT_GT(of_one, 0);
  constexpr std::int64_t kBatch = 5000;
  EXPECT_LT(kept(kBatch) - of_one, kBatch) << "a byte for each head, or more";  // sizes are rounded as it happens
}

INSTANTIATE_TEST_SUITE_P(Cpu, Allocations, ::testing::ValuesIn(cpu_backend().kernels()), kernel_name);

}  // namespace
}  // namespace attnbench::kernels
