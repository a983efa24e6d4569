// The processor as a device: counted aligned memory, one thread pool, a steady clock, a cache flush.
#pragma once

#include <memory>

#include "kernels/device/device.hpp"
#include "kernels/device/thread_pool.hpp"

namespace attnbench::kernels {

/// Facts read from /proc and /sys; touches nothing else.
DeviceFacts cpu_facts();

/// Bytes that are written before a cold sample: twice the last-level cache, at least 64 MiB (caches that the system
/// does not tell of), at most a tenth of the free memory (a virtual machine is told of the cache of its whole host). 0
/// free bytes are not known.
std::uint64_t cpu_flush_bytes(std::uint64_t last_level_cache_bytes, std::uint64_t memory_free_bytes);

/// Memory from aligned_alloc, first touched by nobody; stopwatch = steady_clock around the call; cold = a buffer of
/// cpu_flush_bytes is written by all threads before each sample.
class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads);
  /// With facts that the caller completed (libraries, instruction set).
  CpuDevice(int threads, DeviceFacts facts);
  ~CpuDevice() override;

  /// Where CPU kernels run their loops. Stable between set_threads calls.
  ThreadPool& pool();

  const DeviceFacts& facts() const override;
  std::uint64_t memory_free_bytes() const override;
  base::Result<void> upload(void* target, const void* source, std::size_t bytes) override;
  base::Result<void> download(void* target, const void* source, std::size_t bytes) override;
  base::Result<void> fill_bytes(void* target, unsigned char value, std::size_t bytes) override;
  base::Result<void> synchronize() override;
  void set_threads(int threads) override;
  int threads() const override;
  base::Result<std::unique_ptr<Stopwatch>> stopwatch(Launch launch, const SampleSpec& spec) override;
  std::unique_ptr<MemoryProbe> memory_probe() override;

 protected:
  base::Result<void*> raw_allocate(std::size_t bytes) override;
  void raw_free(void* data, std::size_t bytes) override;

 private:
  DeviceFacts facts_;
  std::unique_ptr<ThreadPool> pool_;
  struct Flush;  // made on the first cold stopwatch, kept; not counted in any point's peak
  std::unique_ptr<Flush> flush_;
};

}  // namespace attnbench::kernels
