// The GPU as a device: facts, counted memory, errors, the stopwatch and the memory probe.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "tests/gpu/gpu_case.hpp"

namespace attnbench::kernels {
namespace {

TEST(CudaPlugin, LoadsOrSaysWhy) {
  const auto backend = cuda_backend();
  if (!backend) GTEST_SKIP() << backend.error().message;
  EXPECT_EQ((*backend)->name, "cuda");
  EXPECT_GE((*backend)->kernels().size(), 3u);
}

TEST(CudaPlugin, WithoutAGpuTheReasonIsASentence) {
  const auto backend = cuda_backend();
  if (!backend) GTEST_SKIP() << backend.error().message;
  const auto devices = (*backend)->devices();
  if (devices) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(devices.error().kind, base::ErrorKind::kAbsent);
  EXPECT_NE(devices.error().message.find("--device cpu"), std::string::npos) << devices.error().message;
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu() == nullptr) GTEST_SKIP() << why_no_gpu();
  }
};

TEST_F(CudaDeviceTest, KnowsItsFacts) {
  const DeviceFacts& facts = gpu()->facts();
  EXPECT_EQ(facts.id, "cuda:0");
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GE(facts.compute_capability, 80);
  EXPECT_EQ(facts.isa, "sm_" + std::to_string(facts.compute_capability));
  EXPECT_GT(facts.cores, 0);
  EXPECT_GT(facts.last_level_cache_bytes, 0u);
  EXPECT_GT(facts.memory_total_bytes, facts.memory_free_bytes);
  EXPECT_EQ(facts.uuid.size(), 40u) << facts.uuid;
  EXPECT_FALSE(facts.driver.empty());
  EXPECT_GE(facts.libraries.size(), 2u);
  RecordProperty("device", facts.name);
  RecordProperty("driver", facts.driver);
}

TEST_F(CudaDeviceTest, AnOrdinalThatDoesNotExistIsAUsageError) {
  const auto device = (*cuda_backend())->open(99);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().kind, base::ErrorKind::kUsage);
  EXPECT_NE(device.error().message.find("cuda:99"), std::string::npos);
}

TEST_F(CudaDeviceTest, CountsAndCopiesItsMemory) {
  const std::uint64_t before = gpu()->allocated_bytes();
  std::vector<int> sent(100000);
  std::iota(sent.begin(), sent.end(), 0);
  std::vector<int> received(sent.size());
  {
    auto buffer = gpu()->allocate(sent.size() * sizeof(int));
    ASSERT_TRUE(buffer);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 256, 0u);
    EXPECT_EQ(gpu()->allocated_bytes(), before + sent.size() * sizeof(int));
    ASSERT_TRUE(gpu()->upload(buffer->data(), sent.data(), buffer->bytes()));
    ASSERT_TRUE(gpu()->download(received.data(), buffer->data(), buffer->bytes()));
    EXPECT_EQ(sent, received);
    ASSERT_TRUE(gpu()->fill_bytes(buffer->data(), 0x01, buffer->bytes()));
    ASSERT_TRUE(gpu()->download(received.data(), buffer->data(), buffer->bytes()));
    EXPECT_EQ(received.back(), 0x01010101);
  }
  EXPECT_EQ(gpu()->allocated_bytes(), before);
}

TEST_F(CudaDeviceTest, OutOfMemoryIsAnErrorThatPasses) {
  const auto much = gpu()->allocate(std::size_t{1} << 50);
  ASSERT_FALSE(much);
  EXPECT_EQ(much.error().kind, base::ErrorKind::kOutOfMemory);
  EXPECT_TRUE(gpu()->synchronize());
  EXPECT_TRUE(gpu()->allocate(1024));
}

/// A launch of real work: a forward of the first kernel in the catalog.
class CudaStopwatchTest : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (IsSkipped()) return;
    const std::size_t bytes = 1 << 20;
    buffer_ = std::make_unique<GpuBlock>(4 * bytes);
    Problem p = make_problem(256, 256, 64, true, Dtype::kFp32);
    const Index4 extent{1, 1, 256, 64};
    auto* base = static_cast<char*>(buffer_->data());
    AttentionArgs args;
    args.problem = p;
    args.q = args.k = args.v = Tensor{base, p.dtype, extent, dense_strides(extent)};
    args.o = Tensor{base + bytes, p.dtype, extent, dense_strides(extent)};
    args.lse = reinterpret_cast<float*>(base + 2 * bytes);
    args.saved = base + 3 * bytes;
    const KernelInfo& naive = *gpu_kernels().front();
    ASSERT_EQ(naive.name, "naive");
    auto prepared = prepare(naive, args, Pass::kFwd, *gpu());
    ASSERT_TRUE(prepared) << prepared.error().message;
    kernel_ = std::move(*prepared);
    work_ = [this] { return kernel_->launch(Pass::kFwd); };
  }

  void takes(const SampleSpec& spec, const Launch& work, Timing expected) {
    auto stopwatch = gpu()->stopwatch(work, spec);
    ASSERT_TRUE(stopwatch) << stopwatch.error().message;
    for (int i = 0; i < 5; ++i) {
      const auto sample = (*stopwatch)->take();
      ASSERT_TRUE(sample) << sample.error().message;
      EXPECT_GT(sample->time_us, 0.0);
    }
    const StopwatchInfo info = (*stopwatch)->info();
    EXPECT_EQ(info.timing, expected) << info.note;
    EXPECT_EQ(info.flush_bytes > 0, spec.cache == CacheState::kCold);
    if (spec.cache == CacheState::kCold) {
      EXPECT_EQ(info.launches_per_sample, 1) << "only the first of packed launches would be cold";
      EXPECT_GE(info.flush_bytes, 2 * gpu()->facts().last_level_cache_bytes);
    }
    EXPECT_TRUE(info.overhead_us.has_value());
    EXPECT_TRUE(info.launch_us.has_value());
  }

  std::unique_ptr<GpuBlock> buffer_;
  std::unique_ptr<PreparedKernel> kernel_;
  Launch work_;
};

TEST_F(CudaStopwatchTest, TakesHotAndColdSamplesBetweenEvents) {
  takes({CacheState::kHot, Timing::kEvents}, work_, Timing::kEvents);
  takes({CacheState::kCold, Timing::kEvents}, work_, Timing::kEvents);
}

TEST_F(CudaStopwatchTest, EverySampleSaysItsClock) {
  if (!gpu()->facts().clock_max_mhz) GTEST_SKIP() << "NVML does not tell the clock here";
  for (const CacheState cache : {CacheState::kHot, CacheState::kCold}) {
    auto stopwatch = gpu()->stopwatch(work_, {cache, Timing::kEvents});
    ASSERT_TRUE(stopwatch) << stopwatch.error().message;
    for (int i = 0; i < 20; ++i) {
      const auto sample = (*stopwatch)->take();
      ASSERT_TRUE(sample) << sample.error().message;
      ASSERT_TRUE(sample->clock_mhz) << "sample " << i;
      EXPECT_GT(*sample->clock_mhz, 100);
      EXPECT_LE(*sample->clock_mhz, *gpu()->facts().clock_max_mhz);
    }
  }
}

TEST_F(CudaStopwatchTest, ALaunchThatKeepsTheHostBusyIsLaunchBound) {
  const Launch slow = [this] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
    while (std::chrono::steady_clock::now() < end) {
    }
    return kernel_->launch(Pass::kFwd);
  };
  auto stopwatch = gpu()->stopwatch(slow, {CacheState::kHot, Timing::kEvents});
  ASSERT_TRUE(stopwatch) << stopwatch.error().message;
  const auto sample = (*stopwatch)->take();
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_GE((*stopwatch)->info().launch_us.value_or(0), 200);
  EXPECT_LT(sample->time_us, 200) << "the host's time is hidden, not measured";
}

TEST_F(CudaStopwatchTest, ReplaysGraphs) {
  takes({CacheState::kHot, Timing::kGraph}, work_, Timing::kGraph);
  takes({CacheState::kCold, Timing::kGraph}, work_, Timing::kGraph);
}

TEST_F(CudaStopwatchTest, ALaunchThatWaitsForTheDeviceIsTimedWithoutTheGateAndSaysSo) {
  const Launch waits = [this] {
    auto ok = kernel_->launch(Pass::kFwd);
    return ok ? gpu()->synchronize() : ok;
  };
  auto stopwatch = gpu()->stopwatch(waits, {CacheState::kHot, Timing::kEvents});
  ASSERT_TRUE(stopwatch) << stopwatch.error().message;
  ASSERT_TRUE((*stopwatch)->take());
  EXPECT_NE((*stopwatch)->info().note.find("waits"), std::string::npos) << (*stopwatch)->info().note;
}

TEST_F(CudaStopwatchTest, ALaunchThatCannotBeCapturedFallsBackUnderAutoAndIsRefusedUnderGraph) {
  const Launch waits = [this] {
    auto ok = kernel_->launch(Pass::kFwd);
    return ok ? gpu()->synchronize() : ok;
  };
  const auto refused = gpu()->stopwatch(waits, {CacheState::kHot, Timing::kGraph});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, base::ErrorKind::kUnsupported) << refused.error().message;
  takes({CacheState::kHot, Timing::kEvents}, work_, Timing::kEvents);
}

TEST_F(CudaStopwatchTest, ATimingOfAnotherDeviceIsAUsageError) {
  const auto stopwatch = gpu()->stopwatch(work_, {CacheState::kHot, Timing::kWall});
  ASSERT_FALSE(stopwatch);
  EXPECT_EQ(stopwatch.error().kind, base::ErrorKind::kUsage);
}

TEST_F(CudaStopwatchTest, AnErrorOfTheLaunchIsTheStopwatchsError) {
  const Launch fails = [] { return base::Result<void>(base::fail(base::ErrorKind::kFailed, "the kernel said no")); };
  const auto stopwatch = gpu()->stopwatch(fails, {CacheState::kHot, Timing::kAuto});
  ASSERT_FALSE(stopwatch);
  EXPECT_EQ(stopwatch.error().message, "the kernel said no");
}

TEST_F(CudaDeviceTest, TheProbeSeesAnAllocationThatCameAndWent) {
  const auto probe = gpu()->memory_probe();
  constexpr std::size_t kBytes = std::size_t{512} << 20;
  {
    auto buffer = gpu()->allocate(kBytes);
    ASSERT_TRUE(buffer);
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(gpu()->fill_bytes(buffer->data(), 1, kBytes));
  }
  const MemoryReading reading = probe->stop();
  ASSERT_TRUE(reading.peak_device_bytes);
  EXPECT_GE(*reading.peak_device_bytes, kBytes);
  EXPECT_FALSE(reading.peak_rss_bytes);
}

}  // namespace
}  // namespace attnbench::kernels
