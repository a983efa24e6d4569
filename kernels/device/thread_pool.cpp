// The workers of thread_pool.hpp: asleep between calls, so that they disturb no kernel.
#include "kernels/device/thread_pool.hpp"

#include <algorithm>

namespace attnbench::kernels {

ThreadPool::ThreadPool(int threads) {
  for (int thread = 1; thread < std::max(1, threads); ++thread) {
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(std::int64_t items, LoopBody body) {
  if (items <= 0) return;
  if (workers_.empty() || items == 1) {
    for (std::int64_t item = 0; item < items; ++item) body(item, 0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    items_ = items;
    next_.store(0, std::memory_order_relaxed);
    busy_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  start_.notify_all();
  drain(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadPool::work(int thread) {
  std::uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
    }
    drain(thread);
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
  }
}

void ThreadPool::drain(int thread) {
  for (;;) {
    const std::int64_t item = next_.fetch_add(1, std::memory_order_relaxed);
    if (item >= items_) return;
    (*body_)(item, thread);
  }
}

}  // namespace attnbench::kernels
