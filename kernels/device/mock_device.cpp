// Memory and time of the mock device.
#include "kernels/device/mock_device.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace attnbench::kernels {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::array<double, 5> kPattern{1.00, 1.01, 0.99, 1.02, 0.98};
constexpr double kColdFactor = 1.1;

class MockStopwatch : public Stopwatch {
 public:
  MockStopwatch(double time_us, std::chrono::milliseconds wait, const SampleSpec& spec)
      : wait_(wait), time_us_(spec.cache == CacheState::kCold ? time_us * kColdFactor : time_us) {
    info_.timing = Timing::kDeclared;
    info_.flush_bytes = spec.cache == CacheState::kCold ? 2 * mock_facts().last_level_cache_bytes : 0;
  }

  base::Result<Sample> take() override {
    if (wait_.count() > 0) std::this_thread::sleep_for(wait_);
    Sample sample;
    sample.time_us = time_us_ * kPattern[taken_++ % kPattern.size()];
    return sample;
  }

  StopwatchInfo info() const override { return info_; }

 private:
  std::chrono::milliseconds wait_;
  double time_us_;
  std::size_t taken_ = 0;
  StopwatchInfo info_;
};

class NoMemoryProbe : public MemoryProbe {
 public:
  MemoryReading stop() override { return {}; }
};

}  // namespace

DeviceFacts mock_facts() {
  DeviceFacts facts;
  facts.kind = DeviceKind::kMock;
  facts.id = "mock";
  facts.name = "Mock device";
  facts.memory_total_bytes = 64 * kGiB;
  facts.memory_free_bytes = 32 * kGiB;
  facts.last_level_cache_bytes = std::uint64_t{1} << 20;
  facts.cores = 1;
  facts.libraries = {{"mock", "1"}};
  return facts;
}

MockDevice::MockDevice() : facts_(mock_facts()) {}

std::uint64_t MockDevice::memory_free_bytes() const { return facts_.memory_free_bytes - allocated_bytes(); }

base::Result<void> MockDevice::upload(void* target, const void* source, std::size_t bytes) {
  if (bytes > 0) std::memcpy(target, source, bytes);
  return {};
}

base::Result<void> MockDevice::download(void* target, const void* source, std::size_t bytes) {
  return upload(target, source, bytes);
}

base::Result<void> MockDevice::fill_bytes(void* target, unsigned char value, std::size_t bytes) {
  if (bytes > 0) std::memset(target, value, bytes);
  return {};
}

base::Result<std::unique_ptr<Stopwatch>> MockDevice::stopwatch(Launch launch, const SampleSpec& spec) {
  if (spec.timing != Timing::kAuto && spec.timing != Timing::kDeclared) {
    return base::fail(base::ErrorKind::kUsage, "timing " + std::string(to_string(spec.timing)) +
                                                   " does not exist on the mock device; use auto or declared");
  }
  declared_us_ = 0;
  wait_ = {};
  if (auto ok = launch(); !ok) return tl::unexpected(ok.error());
  return std::make_unique<MockStopwatch>(declared_us_, wait_, spec);
}

std::unique_ptr<MemoryProbe> MockDevice::memory_probe() { return std::make_unique<NoMemoryProbe>(); }

base::Result<void*> MockDevice::raw_allocate(std::size_t bytes) {
  if (bytes > memory_free_bytes()) {
    return base::fail(base::ErrorKind::kOutOfMemory, "the mock device has no " + std::to_string(bytes) +
                                                         " bytes left (" + std::to_string(memory_free_bytes()) +
                                                         " free)");
  }
  void* data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (data == nullptr) return base::fail(base::ErrorKind::kOutOfMemory, "the host has no memory left");
  return data;
}

void MockDevice::raw_free(void* data, std::size_t) { std::free(data); }

}  // namespace attnbench::kernels
