// A device of declared size and speed, so that everything above it can be tested exactly and in no time.
#pragma once

#include <chrono>
#include <memory>

#include "kernels/device/device.hpp"
#include "kernels/device/thread_pool.hpp"

namespace attnbench::kernels {

/// What the mock device says of itself: 64 GiB, of which 32 GiB free; 1 MiB of cache; one core.
DeviceFacts mock_facts();

/// Host memory, declared sizes, a stopwatch that reads what the last launch declared instead of a clock.
///
/// Sample i of a stopwatch takes the declared time times 1.00, 1.01, 0.99, 1.02, 0.98, over and over; a cold sample
/// takes a tenth longer. The launch runs once, before the first sample, so that a launch that fails is seen to fail.
class MockDevice : public Device {
 public:
  MockDevice();

  /// A mock kernel declares here how long the pass it just ran takes; the passes of one sample add up.
  void add_time_us(double time_us) { declared_us_ += time_us; }

  /// Every sample of the launch that calls this also keeps its caller waiting, in real time.
  void wait_in_samples(std::chrono::milliseconds time) { wait_ = time; }
  ThreadPool& pool() { return pool_; }

  const DeviceFacts& facts() const override { return facts_; }
  std::uint64_t memory_free_bytes() const override;
  base::Result<void> upload(void* target, const void* source, std::size_t bytes) override;
  base::Result<void> download(void* target, const void* source, std::size_t bytes) override;
  base::Result<void> fill_bytes(void* target, unsigned char value, std::size_t bytes) override;
  base::Result<void> synchronize() override { return {}; }
  void set_threads(int) override {}
  int threads() const override { return 1; }
  base::Result<std::unique_ptr<Stopwatch>> stopwatch(Launch launch, const SampleSpec& spec) override;
  std::unique_ptr<MemoryProbe> memory_probe() override;

 protected:
  base::Result<void*> raw_allocate(std::size_t bytes) override;
  void raw_free(void* data, std::size_t bytes) override;

 private:
  DeviceFacts facts_;
  ThreadPool pool_{1};
  double declared_us_ = 0;
  std::chrono::milliseconds wait_{0};
};

}  // namespace attnbench::kernels
