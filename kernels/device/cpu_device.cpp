// The processor as a device.
#include "kernels/device/cpu_device.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "kernels/device/host_limits.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kAlignment = 256;                       // what Device::allocate promises
constexpr std::uint64_t kLeastFlushBytes = 64 * 1024 * 1024;  // where the cache size is unknown or small
constexpr std::uint64_t kFlushShareOfFree = 10;               // one part in
constexpr std::size_t kFlushBlockBytes = 256 * 1024;          // handed to one thread at a time

struct FreeMemory {
  void operator()(unsigned char* data) const { std::free(data); }
};

std::string in_gib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
  return text;
}

std::string best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    return "AVX3";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "AVX2";
  return "SSE2";
#elif defined(__aarch64__)
  return "NEON";
#else
  return {};
#endif
}

double elapsed_us(SteadyClock::time_point begin, SteadyClock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

class CpuMemoryProbe : public MemoryProbe {
 public:
  CpuMemoryProbe() : reset_(reset_peak_resident()) {}

  MemoryReading stop() override {
    MemoryReading reading;
    const std::uint64_t peak = reset_ ? peak_resident_bytes() : 0;
    if (peak > 0) reading.peak_rss_bytes = peak;
    return reading;
  }

 private:
  bool reset_;
};

}  // namespace

struct CpuDevice::Flush {
  std::unique_ptr<unsigned char, FreeMemory> data;
  std::size_t bytes = 0;
  unsigned char value = 0;

  /// Leaves nothing of a kernel's tensors in the last-level cache: writes every line of a buffer larger than it.
  void run(ThreadPool& pool) {
    ++value;
    const auto blocks = static_cast<std::int64_t>((bytes + kFlushBlockBytes - 1) / kFlushBlockBytes);
    pool.parallel_for(blocks, [this](std::int64_t block, int) {
      const std::size_t begin = static_cast<std::size_t>(block) * kFlushBlockBytes;
      std::memset(data.get() + begin, value, std::min(kFlushBlockBytes, bytes - begin));
    });
  }
};

namespace {

/// steady_clock around the call; `flush` runs before it when the cache is to be cold.
class CpuStopwatch : public Stopwatch {
 public:
  CpuStopwatch(Launch launch, Launch flush, std::uint64_t flush_bytes, std::string note = {})
      : launch_(std::move(launch)), flush_(std::move(flush)) {
    info_.timing = Timing::kWall;
    info_.note = std::move(note);
    info_.flush_bytes = flush_bytes;
    info_.overhead_us = empty_sample_us();
  }

  Result<Sample> take() override {
    if (flush_) {
      if (auto ok = flush_(); !ok) return tl::unexpected(ok.error());
    }
    const auto begin = SteadyClock::now();
    auto ok = launch_();
    const auto end = SteadyClock::now();
    if (!ok) return tl::unexpected(ok.error());
    Sample sample;
    sample.time_us = elapsed_us(begin, end);
    return sample;
  }

  StopwatchInfo info() const override { return info_; }

 private:
  /// The least of a few: an interrupt only ever adds.
  static double empty_sample_us() {
    const Launch empty = [] { return Result<void>{}; };
    double least = 1e9;
    for (int i = 0; i < 32; ++i) {
      const auto begin = SteadyClock::now();
      auto ok = empty();
      const auto end = SteadyClock::now();
      if (ok) least = std::min(least, elapsed_us(begin, end));
    }
    return least;
  }

  Launch launch_;
  Launch flush_;
  StopwatchInfo info_;
};

}  // namespace

std::uint64_t cpu_flush_bytes(std::uint64_t last_level_cache_bytes, std::uint64_t memory_free_bytes) {
  const std::uint64_t wanted = std::max(kLeastFlushBytes, 2 * last_level_cache_bytes);
  if (memory_free_bytes == 0) return wanted;
  return std::min(wanted, std::max<std::uint64_t>(kFlushBlockBytes, memory_free_bytes / kFlushShareOfFree));
}

DeviceFacts cpu_facts() {
  const HostProcessor processor = read_host_processor("", affinity_cores());
  const HostMemory memory = read_host_memory("");
  DeviceFacts facts;
  facts.kind = DeviceKind::kCpu;
  facts.id = "cpu";
  facts.name = processor.name.empty() ? "CPU" : processor.name;
  facts.memory_total_bytes = memory.total_bytes;
  facts.memory_free_bytes = memory.free_bytes;
  facts.last_level_cache_bytes = processor.last_level_cache_bytes;
  facts.cores = processor.cores;
  facts.isa = best_isa();
  return facts;
}

CpuDevice::CpuDevice(int threads) : CpuDevice(threads, cpu_facts()) {}

CpuDevice::CpuDevice(int threads, DeviceFacts facts)
    : facts_(std::move(facts)), pool_(std::make_unique<ThreadPool>(threads)) {}

CpuDevice::~CpuDevice() = default;

ThreadPool& CpuDevice::pool() { return *pool_; }

const DeviceFacts& CpuDevice::facts() const { return facts_; }

std::uint64_t CpuDevice::memory_free_bytes() const {
  // The system counts a page as used when it is first touched; what was promised and not touched yet is taken off.
  const std::uint64_t available = read_host_memory("").free_bytes;
  const std::uint64_t promised = allocated_bytes() + (flush_ ? flush_->bytes : 0);
  const std::uint64_t resident = resident_bytes();
  const std::uint64_t untouched = promised > resident ? promised - resident : 0;
  return available > untouched ? available - untouched : 0;
}

Result<void> CpuDevice::upload(void* target, const void* source, std::size_t bytes) {
  if (bytes > 0) std::memcpy(target, source, bytes);
  return {};
}

Result<void> CpuDevice::download(void* target, const void* source, std::size_t bytes) {
  if (bytes > 0) std::memcpy(target, source, bytes);
  return {};
}

Result<void> CpuDevice::fill_bytes(void* target, unsigned char value, std::size_t bytes) {
  if (bytes > 0) std::memset(target, value, bytes);
  return {};
}

Result<void> CpuDevice::synchronize() { return {}; }

void CpuDevice::set_threads(int threads) {
  if (std::max(1, threads) != pool_->threads()) pool_ = std::make_unique<ThreadPool>(threads);
}

int CpuDevice::threads() const { return pool_->threads(); }

Result<std::unique_ptr<Stopwatch>> CpuDevice::stopwatch(Launch launch, const SampleSpec& spec) {
  if (spec.timing != Timing::kAuto && spec.timing != Timing::kWall) {
    return fail(ErrorKind::kUsage, "timing " + std::string(to_string(spec.timing)) +
                                       " does not exist on the cpu device; use auto or wall");
  }
  if (spec.cache == CacheState::kHot) return std::make_unique<CpuStopwatch>(std::move(launch), Launch{}, 0);
  if (!flush_) {
    const std::size_t wanted = cpu_flush_bytes(facts_.last_level_cache_bytes, facts_.memory_free_bytes);
    auto data = raw_allocate(wanted);
    if (!data) return tl::unexpected(data.error());
    flush_ = std::make_unique<Flush>();
    flush_->data.reset(static_cast<unsigned char*>(*data));
    flush_->bytes = wanted;
    flush_->run(*pool_);  // the first touch of the pages, outside the time of any row
  }
  Launch flush = [this] {
    flush_->run(*pool_);
    return Result<void>{};
  };
  std::string note;
  if (flush_->bytes < facts_.last_level_cache_bytes) {
    note = "the cache was flushed with " + in_gib(flush_->bytes) +
           ", a tenth of the free memory; the system tells of " + in_gib(facts_.last_level_cache_bytes) + " of it";
  }
  return std::make_unique<CpuStopwatch>(std::move(launch), std::move(flush), flush_->bytes, std::move(note));
}

std::unique_ptr<MemoryProbe> CpuDevice::memory_probe() { return std::make_unique<CpuMemoryProbe>(); }

Result<void*> CpuDevice::raw_allocate(std::size_t bytes) {
  // Linux would promise the memory and kill the process on first touch: refuse here instead.
  const std::uint64_t free = memory_free_bytes();
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = rounded >= bytes && bytes <= free ? std::aligned_alloc(kAlignment, rounded) : nullptr;
  if (data == nullptr) {
    return fail(ErrorKind::kOutOfMemory, "cpu: " + in_gib(bytes) + " (" + std::to_string(bytes) +
                                             " bytes) were asked for and " + in_gib(free) +
                                             " are free; try a shorter --seq-len or --kernels flash");
  }
  return data;
}

void CpuDevice::raw_free(void* data, std::size_t) { std::free(data); }

}  // namespace attnbench::kernels
