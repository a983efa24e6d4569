// Names of backends, and the mock device and its kernels: declared times, declared sizes, every fate.
#include "kernels/catalog.hpp"

#include <gmock/gmock.h>

#include <set>

#include "kernel_case.hpp"
#include "kernels/device/mock_device.hpp"
#include "kernels/work.hpp"

namespace attnbench::kernels {
namespace {

using ::testing::HasSubstr;

TEST(Catalog, FindsBackendsByName) {
  EXPECT_EQ(find_backend("cpu").value(), &cpu_backend());
  EXPECT_EQ(find_backend("mock").value(), &mock_backend());
}

TEST(Catalog, SaysWhichBackendsThereAreWhenAskedForAnother) {
  const auto missing = find_backend("tpu");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, base::ErrorKind::kUsage);
  EXPECT_THAT(missing.error().message, HasSubstr("tpu"));
  EXPECT_THAT(missing.error().message, HasSubstr("cpu, cuda or mock"));
}

TEST(Catalog, GivesEveryKernelANameOfItsOwnAndAllItsFunctions) {
  for (const Backend* backend : {&cpu_backend(), &mock_backend()}) {
    std::set<std::string> names;
    for (const KernelInfo* kernel : backend->kernels()) {
      EXPECT_TRUE(names.insert(std::string(kernel->name) + ":" + std::string(kernel->variant)).second) << kernel->name;
      EXPECT_EQ(kernel->device, backend->kind) << kernel->name;
      EXPECT_FALSE(kernel->summary.empty()) << kernel->name;
      EXPECT_FALSE(kernel->source.empty()) << kernel->name;
      EXPECT_TRUE(kernel->supports != nullptr && kernel->footprint != nullptr && kernel->tolerance != nullptr &&
                  kernel->prepare != nullptr)
          << kernel->name;
    }
  }
}

TEST(Catalog, HasTheThreeKernelsOfTheCpu) {
  std::set<std::string_view> names;
  for (const KernelInfo* kernel : cpu_backend().kernels()) names.insert(kernel->name);
  EXPECT_TRUE(names.count("naive") == 1 && names.count("blas") == 1 && names.count("flash") == 1);
}

const KernelInfo& mock(std::string_view name) {
  for (const KernelInfo* kernel : mock_backend().kernels()) {
    if (kernel->name == name) return *kernel;
  }
  throw std::runtime_error("no mock kernel of that name");
}

/// A mock kernel bound to memory of its device.
class MockKernels : public ::testing::Test {
 protected:
  base::Result<std::unique_ptr<PreparedKernel>> bind(const KernelInfo& kernel) {
    args_ = args_of(problem_, Pass::kFwdBwd, inputs_, results_);
    args_.lse = lse_.data();
    const Footprint size = kernel.footprint(problem_, Pass::kFwdBwd, {&device_.facts(), 1, false});
    saved_ = device_.allocate(size.saved_bytes).value();
    workspace_ = device_.allocate(size.workspace_bytes).value();
    args_.saved = saved_.data();
    args_.workspace = workspace_.data();
    return prepare(kernel, args_, Pass::kFwdBwd, device_);
  }

  std::vector<double> times(const KernelInfo& kernel, Pass pass, CacheState cache) {
    auto prepared = bind(kernel);
    auto watch = device_.stopwatch([&] { return launch(**prepared, pass); }, {cache, Timing::kAuto});
    EXPECT_EQ((*watch)->info().timing, Timing::kDeclared);
    std::vector<double> samples;
    for (int i = 0; i < 6; ++i) samples.push_back((*watch)->take()->time_us);
    return samples;
  }

  MockDevice device_;
  Problem problem_ = make_problem(10, 10, 8, true);
  Inputs inputs_ = random_inputs(problem_, 1);
  Results results_{problem_};
  std::vector<float> lse_ = std::vector<float>(10);
  Buffer saved_, workspace_;
  AttentionArgs args_;
};

/// By hand: 10 us and a microsecond per 1e5 products of 55 visible pairs by 8 dimensions.
constexpr double kNaiveForwardUs = 10 + 55 * 8 / 100000.0;

TEST_F(MockKernels, DeclareTheTimesOfTheirFormula) {
  EXPECT_DOUBLE_EQ(times(mock("naive"), Pass::kFwd, CacheState::kHot)[0], kNaiveForwardUs);
  EXPECT_DOUBLE_EQ(times(mock("naive"), Pass::kBwd, CacheState::kHot)[0], 2.5 * kNaiveForwardUs);
  EXPECT_DOUBLE_EQ(times(mock("slow"), Pass::kFwd, CacheState::kHot)[0], 60e6 + 10 + 55 * 8);
}

TEST_F(MockKernels, RepeatAFixedPatternOfSamples) {
  const std::vector<double> samples = times(mock("naive"), Pass::kFwd, CacheState::kHot);
  const double pattern[] = {1.00, 1.01, 0.99, 1.02, 0.98, 1.00};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(samples[i], kNaiveForwardUs * pattern[i]);
}

TEST_F(MockKernels, AddTheTimesOfBothPasses) {
  EXPECT_DOUBLE_EQ(times(mock("naive"), Pass::kFwdBwd, CacheState::kHot)[0], 3.5 * kNaiveForwardUs);
}

TEST_F(MockKernels, AreATenthSlowerWhenCold) {
  const double hot = times(mock("flash"), Pass::kFwd, CacheState::kHot)[0];
  EXPECT_DOUBLE_EQ(times(mock("flash"), Pass::kFwd, CacheState::kCold)[0], 1.1 * hot);
}

TEST_F(MockKernels, AreRightWhereTheySaySo) {
  const OracleForward forward = oracle_forward(problem_, inputs_.oracle());
  const OracleBackward backward = oracle_backward(problem_, inputs_.oracle());
  for (const char* name : {"naive", "blas", "flash", "slow"}) {
    auto prepared = bind(mock(name));
    ASSERT_TRUE(prepared) << name;
    ASSERT_TRUE(launch(**prepared, Pass::kFwdBwd)) << name;
    EXPECT_LE(error_of(results_.o.values(), forward.o), 1e-6) << name;
    EXPECT_LE(error_of(lse_, forward.lse), 1e-6) << name;
    EXPECT_LE(error_of(results_.dq.values(), backward.dq), 1e-6) << name;
    EXPECT_LE(error_of(results_.dk.values(), backward.dk), 1e-6) << name;
    EXPECT_LE(error_of(results_.dv.values(), backward.dv), 1e-6) << name;
  }
}

TEST_F(MockKernels, MeetTheFateOfTheirName) {
  auto wrong = bind(mock("incorrect"));
  ASSERT_TRUE(wrong);
  ASSERT_TRUE(launch(**wrong, Pass::kFwdBwd));
  EXPECT_GT(error_of(results_.o.values(), oracle_forward(problem_, inputs_.oracle()).o), 1e-2);
  EXPECT_GT(error_of(results_.dv.values(), oracle_backward(problem_, inputs_.oracle()).dv), 1e-2);
  EXPECT_EQ(bind(mock("unsupported")).error().kind, base::ErrorKind::kUnsupported);
  EXPECT_EQ(bind(mock("oom")).error().kind, base::ErrorKind::kOutOfMemory);
  EXPECT_EQ(launch(**bind(mock("failed")), Pass::kFwd).error().kind, base::ErrorKind::kFailed);
  EXPECT_EQ(launch(**bind(mock("lost")), Pass::kFwd).error().kind, base::ErrorKind::kDeviceLost);
  EXPECT_GT(times(mock("slow"), Pass::kFwd, CacheState::kHot)[0], 60e6);  // a minute, as its summary says
}

TEST_F(MockKernels, RunOutOfDeclaredMemory) {
  const std::uint64_t free = device_.memory_free_bytes();
  EXPECT_EQ(free, std::uint64_t{32} << 30);
  const auto refused = device_.allocate(free + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, base::ErrorKind::kOutOfMemory);
}

/// A device that others may be current beside.
class OneOfMany : public MockDevice {
 public:
  base::Result<void> make_current() override {
    if (lost) return base::fail(base::ErrorKind::kDeviceLost, "gone");
    current = true;
    return {};
  }
  bool current = false;
  bool lost = false;
};

/// Kernels that note whether their device was current.
struct Noted {
  static inline std::vector<bool> current;

  class Kernel : public PreparedKernel {
   public:
    explicit Kernel(OneOfMany& device) : device_(device) {}
    base::Result<void> launch(Pass) override {
      current.push_back(device_.current);
      return {};
    }
    std::string variant() const override { return "noted"; }

   private:
    OneOfMany& device_;
  };

  static base::Result<std::unique_ptr<PreparedKernel>> prepare(const AttentionArgs&, Device& device) {
    auto& one = static_cast<OneOfMany&>(device);
    current.push_back(one.current);
    return std::make_unique<Kernel>(one);
  }
};

TEST(Prepare, MakesTheDeviceCurrentForEveryKernelThenAndInEachLaunch) {
  KernelInfo kernel = mock("naive");
  kernel.prepare = &Noted::prepare;
  kernel.footprint = [](const Problem&, Pass, const Target&) { return Footprint{}; };
  const Problem p = make_problem(4, 4, 8);
  const Inputs inputs = random_inputs(p, 1);
  std::vector<float> lse(4);
  const Results results(p);
  AttentionArgs args = args_of(p, Pass::kFwd, inputs, results);
  args.lse = lse.data();
  OneOfMany device;
  Noted::current.clear();
  auto prepared = prepare(kernel, args, Pass::kFwd, device);
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ((*prepared)->variant(), "noted");
  for (int i = 0; i < 2; ++i) {
    device.current = false;  // another one is
    ASSERT_TRUE((*prepared)->launch(Pass::kFwd));
  }
  EXPECT_EQ(Noted::current, std::vector<bool>(3, true));
  device.lost = true;
  EXPECT_EQ((*prepared)->launch(Pass::kFwd).error().kind, base::ErrorKind::kDeviceLost);
  EXPECT_EQ(prepare(kernel, args, Pass::kFwd, device).error().kind, base::ErrorKind::kDeviceLost);
  EXPECT_EQ(Noted::current.size(), 3u) << "launched on a device that is not to be had";
}

}  // namespace
}  // namespace attnbench::kernels
