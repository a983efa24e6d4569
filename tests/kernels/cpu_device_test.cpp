// The processor as a device: counted memory, refusals instead of overcommitment, stopwatch, facts.
#include "kernels/device/cpu_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernels/catalog.hpp"
#include "kernels/device/host_limits.hpp"

namespace attnbench::kernels {
namespace {

using ::testing::HasSubstr;

TEST(CpuDevice, CountsWhatIsAllocatedAndItsPeak) {
  CpuDevice device(1);
  {
    auto first = device.allocate(1000);
    ASSERT_TRUE(first);
    {
      auto second = device.allocate(3000);
      ASSERT_TRUE(second);
      EXPECT_EQ(device.allocated_bytes(), 4000u);
    }
    EXPECT_EQ(device.allocated_bytes(), 1000u);
    EXPECT_EQ(device.peak_allocated_bytes(), 4000u);
    device.reset_peak();
    EXPECT_EQ(device.peak_allocated_bytes(), 1000u);
  }
  EXPECT_EQ(device.allocated_bytes(), 0u);
}

TEST(CpuDevice, AlignsTo256Bytes) {
  CpuDevice device(1);
  for (const std::size_t bytes : {1u, 100u, 4097u}) {
    auto buffer = device.allocate(bytes);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 256, 0u);
  }
}

TEST(CpuDevice, GivesNoMemoryForZeroBytes) {
  CpuDevice device(1);
  auto buffer = device.allocate(0);
  ASSERT_TRUE(buffer);
  EXPECT_FALSE(*buffer);
}

TEST(CpuDevice, RefusesMoreThanIsFreeAndSaysBoth) {
  CpuDevice device(1);
  const auto refused = device.allocate(device.facts().memory_total_bytes * 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, base::ErrorKind::kOutOfMemory);
  EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(device.facts().memory_total_bytes * 2)));
  EXPECT_THAT(refused.error().message, HasSubstr("free"));
  EXPECT_EQ(device.allocated_bytes(), 0u);
}

TEST(CpuDevice, RefusesASizeThatWraps) {
  CpuDevice device(1);
  EXPECT_FALSE(device.allocate(~std::size_t{0} - 10));
}

TEST(CpuDevice, TakesPromisedMemoryOffWhatIsFree) {
  CpuDevice device(1);
  const std::uint64_t most = device.memory_free_bytes();
  const std::uint64_t half = most / 2;
  auto first = device.allocate(half);  // promised, never touched
  ASSERT_TRUE(first);
  EXPECT_LT(device.memory_free_bytes(), most - half / 2);
  EXPECT_FALSE(device.allocate(most - half / 4));
}

TEST(CpuDevice, CopiesAndFills) {
  CpuDevice device(1);
  auto buffer = device.allocate(16);
  ASSERT_TRUE(buffer);
  const char text[16] = "fifteen letters";
  char back[16] = {};
  ASSERT_TRUE(device.upload(buffer->data(), text, sizeof(text)));
  ASSERT_TRUE(device.download(back, buffer->data(), sizeof(back)));
  EXPECT_STREQ(back, text);
  ASSERT_TRUE(device.fill_bytes(buffer->data(), 0xff, 16));
  ASSERT_TRUE(device.download(back, buffer->data(), sizeof(back)));
  EXPECT_EQ(back[7], static_cast<char>(0xff));
}

TEST(CpuDevice, TimesTheCallAndOnlyTheCall) {
  CpuDevice device(2);
  int calls = 0;
  for (const CacheState cache : {CacheState::kHot, CacheState::kCold}) {
    auto watch = device.stopwatch(
        [&] {
          ++calls;
          return base::Result<void>{};
        },
        {cache, Timing::kAuto});
    ASSERT_TRUE(watch);
    const int before = calls;
    const auto sample = (*watch)->take();
    ASSERT_TRUE(sample);
    EXPECT_EQ(calls, before + 1);
    EXPECT_GE(sample->time_us, 0.0);
    EXPECT_EQ((*watch)->info().timing, Timing::kWall);
    EXPECT_TRUE((*watch)->info().overhead_us.has_value());
    const std::uint64_t flushed = (*watch)->info().flush_bytes;
    if (cache == CacheState::kHot) {
      EXPECT_EQ(flushed, 0u);
    } else {
      EXPECT_EQ(flushed, cpu_flush_bytes(device.facts().last_level_cache_bytes, device.facts().memory_free_bytes));
    }
  }
  EXPECT_EQ(device.peak_allocated_bytes(), 0u) << "the buffer that empties the cache belongs to no kernel";
}

TEST(CpuDevice, FlushesTwiceTheCacheWithinItsBounds) {
  constexpr std::uint64_t kMib = 1 << 20;
  EXPECT_EQ(cpu_flush_bytes(480 * kMib, 20000 * kMib), 960 * kMib);
  EXPECT_EQ(cpu_flush_bytes(480 * kMib, 4000 * kMib), 400 * kMib);  // a tenth of what is free
  EXPECT_EQ(cpu_flush_bytes(8 * kMib, 4000 * kMib), 64 * kMib);
  EXPECT_EQ(cpu_flush_bytes(0, 320 * kMib), 32 * kMib);
  EXPECT_EQ(cpu_flush_bytes(480 * kMib, 0), 960 * kMib);  // free memory unknown
}

TEST(CpuDevice, TouchesTheFlushBufferBeforeAnySample) {
  CpuDevice device(2);
  const std::uint64_t before = resident_bytes();
  const auto watch = device.stopwatch([] { return base::Result<void>{}; }, {CacheState::kCold, Timing::kAuto});
  ASSERT_TRUE(watch);
  EXPECT_GE(resident_bytes(), before + (*watch)->info().flush_bytes / 10 * 9);
}

TEST(CpuDevice, SaysWhenTheFlushIsSmallerThanTheCache) {
  DeviceFacts facts = cpu_facts();
  facts.last_level_cache_bytes = facts.memory_free_bytes;
  CpuDevice device(1, facts);
  const auto watch = device.stopwatch([] { return base::Result<void>{}; }, {CacheState::kCold, Timing::kAuto});
  ASSERT_TRUE(watch);
  EXPECT_NE((*watch)->info().note.find("a tenth of the free memory"), std::string::npos);
}

TEST(CpuDevice, PassesOnTheErrorOfALaunch) {
  CpuDevice device(1);
  auto watch = device.stopwatch([] { return base::Result<void>(base::fail(base::ErrorKind::kFailed, "no")); },
                                {CacheState::kHot, Timing::kAuto});
  ASSERT_TRUE(watch);
  const auto sample = (*watch)->take();
  ASSERT_FALSE(sample);
  EXPECT_EQ(sample.error().message, "no");
}

TEST(CpuDevice, DeclinesTheClocksOfOtherDevicesByName) {
  CpuDevice device(1);
  const auto watch = device.stopwatch([] { return base::Result<void>{}; }, {CacheState::kHot, Timing::kEvents});
  ASSERT_FALSE(watch);
  EXPECT_THAT(watch.error().message, HasSubstr("events"));
}

TEST(CpuDevice, SeesThePeakOfResidentMemory) {
  CpuDevice device(1);
  auto probe = device.memory_probe();
  constexpr std::size_t kBytes = 64u << 20;
  {
    auto buffer = device.allocate(kBytes);
    ASSERT_TRUE(buffer);
    ASSERT_TRUE(device.fill_bytes(buffer->data(), 1, kBytes));
  }
  const MemoryReading reading = probe->stop();
  if (!reading.peak_rss_bytes) GTEST_SKIP() << "this kernel does not reset VmHWM";
  EXPECT_GE(*reading.peak_rss_bytes, kBytes);
  EXPECT_FALSE(reading.peak_device_bytes.has_value());
}

TEST(CpuDevice, ChangesItsNumberOfThreads) {
  CpuDevice device(1);
  device.set_threads(3);
  EXPECT_EQ(device.threads(), 3);
  EXPECT_EQ(device.pool().threads(), 3);
}

TEST(CpuFacts, SayWhatThisMachineIs) {
  const DeviceFacts facts = cpu_facts();
  EXPECT_EQ(facts.id, "cpu");
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GE(facts.cores, 1);
  EXPECT_LE(facts.cores, affinity_cores());
  EXPECT_GT(facts.memory_total_bytes, 0u);
  EXPECT_LE(facts.memory_free_bytes, facts.memory_total_bytes);
}

/// A made-up machine: files under a directory that stands for the root of a system.
class HostLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("attnbench_host_" + std::to_string(::getpid()));
    write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Test Processor 9000\n");
    write("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
    write("/sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
    write("/sys/devices/system/cpu/cpu0/cache/index3/size", "32768K\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::filesystem::path root_;
};

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST_F(HostLimits, WithoutControlGroupsAreTheMachinesOwn) {
  const HostProcessor processor = read_host_processor(root_.string(), 8);
  EXPECT_EQ(processor.name, "Test Processor 9000");
  EXPECT_EQ(processor.cores, 8);
  EXPECT_EQ(processor.last_level_cache_bytes, 32u << 20);
  const HostMemory memory = read_host_memory(root_.string());
  EXPECT_EQ(memory.total_bytes, 16 * kGiB);
  EXPECT_EQ(memory.free_bytes, 8 * kGiB);
}

TEST_F(HostLimits, RespectVersion2Groups) {
  write("/proc/self/cgroup", "0::/job/inner\n");
  write("/sys/fs/cgroup/job/inner/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  write("/sys/fs/cgroup/job/memory.max", std::to_string(4 * kGiB) + "\n");
  write("/sys/fs/cgroup/job/memory.current", std::to_string(3 * kGiB) + "\n");
  write("/sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file " + std::to_string(2 * kGiB) + "\n");
  EXPECT_EQ(read_host_processor(root_.string(), 8).cores, 3);  // 2.5, rounded up
  const HostMemory memory = read_host_memory(root_.string());
  EXPECT_EQ(memory.total_bytes, 4 * kGiB);
  EXPECT_EQ(memory.free_bytes, 3 * kGiB);  // 1 GiB of 3 is in use, 2 GiB are cache that can be dropped
}

TEST_F(HostLimits, RespectVersion1Groups) {
  write("/proc/self/cgroup", "4:memory:/box\n2:cpu,cpuacct:/box\n");
  write("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "100000\n");
  write("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", std::to_string(2 * kGiB) + "\n");
  write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(1 * kGiB) + "\n");
  EXPECT_EQ(read_host_processor(root_.string(), 8).cores, 1);
  EXPECT_EQ(read_host_memory(root_.string()).total_bytes, 2 * kGiB);
  EXPECT_EQ(read_host_memory(root_.string()).free_bytes, 1 * kGiB);
}

TEST_F(HostLimits, TakeANumberThatMeansNoLimitAsNone) {
  write("/proc/self/cgroup", "4:memory:/box\n");
  write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(read_host_memory(root_.string()).total_bytes, 16 * kGiB);
}

TEST_F(HostLimits, RespectTheLimitsOfTheProcess) {
  const std::string unlimited = "unlimited            unlimited            bytes\n";
  const std::string two_gib = std::to_string(2 * kGiB) + "           unlimited            bytes\n";
  write("/proc/self/status", "Name:\tx\nVmSize:\t  524288 kB\nVmData:\t  1048576 kB\n");
  write("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max data size             " +
            unlimited + "Max address space         " + two_gib);
  EXPECT_EQ(read_host_memory(root_.string()).total_bytes, 2 * kGiB);
  EXPECT_EQ(read_host_memory(root_.string()).free_bytes, 3 * kGiB / 2);
  write("/proc/self/limits", "Max data size             " + two_gib + "Max address space         " + unlimited);
  EXPECT_EQ(read_host_memory(root_.string()).free_bytes, 1 * kGiB);
  write("/proc/self/limits", "Max data size             " + unlimited + "Max address space         " + unlimited);
  EXPECT_EQ(read_host_memory(root_.string()).free_bytes, 8 * kGiB);
  // Less than what is taken already: none is free, which is no very large number.
  write("/proc/self/limits", "Max address space         1024                 1024                 bytes\n");
  EXPECT_EQ(read_host_memory(root_.string()).free_bytes, 0u);
}

TEST_F(HostLimits, OfAnEmptySystemAreUnknownNotWrong) {
  const std::string nowhere = root_.string() + "/nothing";
  EXPECT_EQ(read_host_processor(nowhere, 2).cores, 2);
  EXPECT_TRUE(read_host_processor(nowhere, 2).name.empty());
  EXPECT_EQ(read_host_memory(nowhere).total_bytes, 0u);
}

}  // namespace
}  // namespace attnbench::kernels
