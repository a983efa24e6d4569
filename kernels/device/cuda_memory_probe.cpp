// High-water mark of a GPU's memory, seen from outside the program's own counters.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "kernels/device/cuda_stopwatch.hpp"

namespace attnbench::kernels {
namespace {

// Modules that load late and the driver's own pools move free memory by tens of MiB; more than this came from
// elsewhere.
constexpr std::uint64_t kForeignBytes = std::uint64_t{256} << 20;
constexpr auto kPollInterval = std::chrono::microseconds(200);

class CudaMemoryProbe : public MemoryProbe {
 public:
  CudaMemoryProbe(int ordinal, const Device& device) : ordinal_(ordinal), device_(device) {
    baseline_ = free_bytes();
    allocated_ = device_.allocated_bytes();
    lowest_ = baseline_;
    poller_ = std::thread([this] { poll(); });
  }

  ~CudaMemoryProbe() override { join(); }

  MemoryReading stop() override {
    join();
    const std::uint64_t now = free_bytes();
    MemoryReading reading;
    if (baseline_ == 0) return reading;
    const std::uint64_t lowest = std::min(lowest_.load(), now);
    reading.peak_device_bytes = baseline_ > lowest ? baseline_ - lowest : 0;
    // What this device allocated or freed meanwhile explains so much of the change; the rest is someone else's.
    const auto own = static_cast<std::int64_t>(device_.allocated_bytes()) - static_cast<std::int64_t>(allocated_);
    const auto seen = static_cast<std::int64_t>(baseline_) - static_cast<std::int64_t>(now);
    reading.foreign = std::max(seen - own, own - seen) > static_cast<std::int64_t>(kForeignBytes);
    return reading;
  }

 private:
  std::uint64_t free_bytes() const {
    std::size_t free = 0;
    std::size_t total = 0;
    (void)cudaSetDevice(ordinal_);
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
  }

  void poll() {
    while (!done_.load()) {
      const std::uint64_t free = free_bytes();
      if (free > 0) lowest_.store(std::min(lowest_.load(), free));
      std::this_thread::sleep_for(kPollInterval);
    }
  }

  void join() {
    done_.store(true);
    if (poller_.joinable()) poller_.join();
  }

  int ordinal_;
  const Device& device_;
  std::uint64_t baseline_ = 0;
  std::uint64_t allocated_ = 0;
  std::atomic<std::uint64_t> lowest_{0};
  std::atomic<bool> done_{false};
  std::thread poller_;
};

}  // namespace

std::unique_ptr<MemoryProbe> make_cuda_memory_probe(int ordinal, const Device& device) {
  return std::make_unique<CudaMemoryProbe>(ordinal, device);
}

}  // namespace attnbench::kernels
