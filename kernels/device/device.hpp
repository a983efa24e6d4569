// What a machine offers to the harness: facts, counted memory, copies, and a stopwatch. One implementation per backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/base/error.hpp"

namespace attnbench::kernels {

enum class DeviceKind : std::uint8_t { kCpu, kCuda, kMock };

constexpr std::string_view to_string(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kCuda:
      return "cuda";
    case DeviceKind::kMock:
      return "mock";
  }
  return "?";
}

/// What is known of a device before anything runs on it. Zero or empty where a fact does not exist for the kind.
struct DeviceFacts {
  DeviceKind kind = DeviceKind::kCpu;
  int ordinal = 0;
  std::string id;    // what --device takes: cpu, cuda:0, mock
  std::string name;  // as the vendor names it
  std::uint64_t memory_total_bytes = 0;
  std::uint64_t memory_free_bytes = 0;       // at the time of asking
  std::uint64_t last_level_cache_bytes = 0;  // CPU: L3; CUDA: L2
  int cores = 0;                             // CPU: processors this process may use; CUDA: multiprocessors
  int compute_capability = 0;                // CUDA: 90 for 9.0
  std::string isa;                           // CPU: best instruction set in use (AVX2, AVX3, NEON); CUDA: sm_90
  std::string driver;                        // CUDA driver version
  std::string uuid;                          // CUDA: which board this is
  std::optional<double> power_limit_w;       // CUDA: enforced limit, where NVML tells
  std::optional<double> clock_max_mhz;       // CUDA: highest SM clock, where NVML tells
  std::vector<std::pair<std::string, std::string>> libraries;  // name, version, of what kernels here call
};

/// L2 (or last-level cache) state before a sample. Cold: a buffer larger than the cache was written just before.
enum class CacheState : std::uint8_t { kCold, kHot };

constexpr std::string_view to_string(CacheState cache) { return cache == CacheState::kCold ? "cold" : "hot"; }

/// Where the time comes from. wall: host clock around the call (CPU). events, graph: CUDA. declared: mock.
enum class Timing : std::uint8_t { kAuto, kWall, kEvents, kGraph, kDeclared };

constexpr std::string_view to_string(Timing timing) {
  switch (timing) {
    case Timing::kAuto:
      return "auto";
    case Timing::kWall:
      return "wall";
    case Timing::kEvents:
      return "events";
    case Timing::kGraph:
      return "graph";
    case Timing::kDeclared:
      return "declared";
  }
  return "?";
}

struct SampleSpec {
  CacheState cache = CacheState::kCold;
  Timing timing = Timing::kAuto;  // kAuto: the device chooses and says what it chose
};

/// One measured execution (or the mean of `launches` packed ones).
struct Sample {
  double time_us = 0;
  std::optional<double> clock_mhz;  // SM clock during the sample, where it can be read
  std::optional<bool> throttled;    // whether a power or thermal limit held the device back, where it can tell
};

/// How the stopwatch measures; constant over its life, goes into the row.
struct StopwatchInfo {
  Timing timing = Timing::kWall;
  int launches_per_sample = 1;
  std::uint64_t flush_bytes = 0;      // written before each cold sample
  std::optional<double> overhead_us;  // time of an empty sample, reported and never subtracted
  std::optional<double> launch_us;    // CUDA: host time of one launch call; above the sample's time, it is launch bound
  std::string note;                   // a sentence for the row when auto had to fall back
};

/// The work to time. Must not allocate, print or synchronise with the host.
using Launch = std::function<base::Result<void>()>;

/// Times one bound launch, sample by sample.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual base::Result<Sample> take() = 0;
  virtual StopwatchInfo info() const = 0;
};

/// High-water mark of memory between start (construction) and stop, seen from outside the program's own counters.
struct MemoryReading {
  std::optional<std::uint64_t> peak_rss_bytes;     // CPU: VmHWM after a reset, whole process
  std::optional<std::uint64_t> peak_device_bytes;  // CUDA: baseline free minus the lowest free (cudaMemGetInfo)
  bool foreign = false;                            // free memory changed for reasons outside this process
};

class MemoryProbe {
 public:
  virtual ~MemoryProbe() = default;
  virtual MemoryReading stop() = 0;
};

class Device;
class Queues;

/// Owns device memory; gives it back, and the count with it, when it goes.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class Device;
  Buffer(Device* owner, void* data, std::size_t bytes) : owner_(owner), data_(data), bytes_(bytes) {}
  void swap(Buffer& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  Device* owner_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A device in use. Not thread-safe: one host thread drives it.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceFacts& facts() const = 0;
  /// Free bytes now; a point that needs more is not started.
  virtual std::uint64_t memory_free_bytes() const = 0;

  /// Counted, aligned to 256 bytes, contents undefined. Zero bytes give an empty buffer. Error: kOutOfMemory.
  base::Result<Buffer> allocate(std::size_t bytes);
  std::uint64_t allocated_bytes() const { return allocated_bytes_; }
  std::uint64_t peak_allocated_bytes() const { return peak_allocated_bytes_; }
  void reset_peak() { peak_allocated_bytes_ = allocated_bytes_; }

  /// Copies and fills are ordered with launches and complete when they return.
  virtual base::Result<void> upload(void* target, const void* source, std::size_t bytes) = 0;
  virtual base::Result<void> download(void* target, const void* source, std::size_t bytes) = 0;
  virtual base::Result<void> fill_bytes(void* target, unsigned char value, std::size_t bytes) = 0;
  /// Waits for all launches; surfaces asynchronous errors (kDeviceLost when sticky).
  virtual base::Result<void> synchronize() = 0;
  /// Host threads that kernels may use (CPU).
  virtual void set_threads(int threads) = 0;
  virtual int threads() const = 0;
  /// The stream that launches go to (cudaStream_t); null where there is none.
  virtual void* stream() const { return nullptr; }
  /// Lets the calling thread's launches go to this device. prepare() in kernel.hpp sees to it before each.
  virtual base::Result<void> make_current() { return {}; }
  /// stream() and the queues beside it; null where work is done when a call returns.
  virtual Queues* queues() { return nullptr; }
  virtual base::Result<std::unique_ptr<Stopwatch>> stopwatch(Launch launch, const SampleSpec& spec) = 0;
  virtual std::unique_ptr<MemoryProbe> memory_probe() = 0;

 protected:
  virtual base::Result<void*> raw_allocate(std::size_t bytes) = 0;
  virtual void raw_free(void* data, std::size_t bytes) = 0;

 private:
  friend class Buffer;
  void release(void* data, std::size_t bytes);

  std::uint64_t allocated_bytes_ = 0;
  std::uint64_t peak_allocated_bytes_ = 0;
};

}  // namespace attnbench::kernels
