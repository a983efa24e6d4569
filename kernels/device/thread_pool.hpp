// The one pool of host threads that CPU kernels run on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace attnbench::kernels {

/// A loop's body by reference: the callable must outlive it. Unlike std::function it never allocates.
class LoopBody {
 public:
  template <typename Body>
  requires(!std::is_same_v<std::remove_cvref_t<Body>, LoopBody>)
      LoopBody(Body&& body)  // not explicit: a lambda is passed as it is
      : body_(const_cast<void*>(static_cast<const void*>(std::addressof(body)))),
        call_([](void* target, std::int64_t item, int thread) {
          (*static_cast<std::remove_reference_t<Body>*>(target))(item, thread);
        }) {}

  void operator()(std::int64_t item, int thread) const { call_(body_, item, thread); }

 private:
  void* body_;
  void (*call_)(void* body, std::int64_t item, int thread);
};

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
  /// The body must not throw and must not call parallel_for. Allocates nothing.
  void parallel_for(std::int64_t items, LoopBody body);

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
  const LoopBody* body_ = nullptr;
  std::int64_t items_ = 0;
  std::atomic<std::int64_t> next_{0};
};

}  // namespace attnbench::kernels
