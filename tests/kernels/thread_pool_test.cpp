// The pool hands out every item once and in order of index.
#include "kernels/device/thread_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace attnbench::kernels {
namespace {

TEST(ThreadPool, RunsEveryItemExactlyOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t items : {0, 1, 2, 3, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(items));
      pool.parallel_for(items, [&](std::int64_t item, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        seen[static_cast<std::size_t>(item)].fetch_add(1);
      });
      for (const auto& count : seen) ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, RunsItemsInOrderOnOneThread) {
  ThreadPool pool(1);
  std::vector<std::int64_t> order;
  pool.parallel_for(50, [&](std::int64_t item, int) { order.push_back(item); });
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(order.size(), 50u);
}

TEST(ThreadPool, NeverRunsTwoItemsOfOneThreadAtOnce) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  for (int repeat = 0; repeat < 200; ++repeat) {
    pool.parallel_for(16, [&](std::int64_t, int thread) {
      auto& mine = inside[static_cast<std::size_t>(thread)];
      EXPECT_EQ(mine.fetch_add(1), 0);
      mine.fetch_sub(1);
    });
  }
}

TEST(ThreadPool, WritesOfALoopAreSeenAfterIt) {
  ThreadPool pool(3);
  std::vector<std::int64_t> values(1000, 0);
  for (std::int64_t repeat = 1; repeat <= 100; ++repeat) {
    pool.parallel_for(1000, [&](std::int64_t item, int) { values[static_cast<std::size_t>(item)] += repeat; });
  }
  for (const std::int64_t value : values) ASSERT_EQ(value, 100 * 101 / 2);
}

TEST(ThreadPool, TakesLessThanOneThreadAsOne) { EXPECT_EQ(ThreadPool(0).threads(), 1); }

}  // namespace
}  // namespace attnbench::kernels
