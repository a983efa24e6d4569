// The one pool of host threads that CPU kernels run on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace attnbench::kernels {

/// Runs loops over independent items on a fixed number of threads, the caller among them. Idle threads sleep, so they
/// do not disturb whatever is timed next. Items are handed out one by one in index order: put the longest first.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(item, thread) for item in [0, items), thread in [0, threads()); returns when all are done.
  /// The body must not throw and must not call parallel_for.
  void parallel_for(std::int64_t items, const std::function<void(std::int64_t item, int thread)>& body);

 private:
  void work(int thread);
  void drain(int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  std::uint64_t generation_ = 0;
  int busy_ = 0;
  bool stopping_ = false;
  const std::function<void(std::int64_t, int)>* body_ = nullptr;
  std::int64_t items_ = 0;
  std::atomic<std::int64_t> next_{0};
};

}  // namespace attnbench::kernels
