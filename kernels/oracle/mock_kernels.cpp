// Kernels of the mock device. naive, blas and flash are right (the oracle computes them) and declare their times; the
// others each meet one fate, so that every status of a row can be produced at will.
#include <chrono>
#include <limits>

#include "kernels/catalog.hpp"
#include "kernels/device/mock_device.hpp"
#include "kernels/oracle/oracle.hpp"
#include "kernels/work.hpp"

namespace attnbench::kernels {

std::span<const KernelInfo* const> mock_kernels();

namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

enum class Fate : std::uint8_t { kRight, kIncorrect, kFailed, kLost, kSleepy, kSlow };

/// A sample of the sleepy kernel: a moment to a person, and what it declares is next to nothing of a time limit.
constexpr std::chrono::milliseconds kSleep{20};

/// What every launch of the slow kernel declares beside its products, so that it is slow at any size.
constexpr double kSlowUs = 60e6;

/// The declared time of a mock kernel, microseconds: 10 + pairs * D * batch * heads / rate per pass, the backward 2.5
/// times that, with a rate of 1e5 (naive), 2e5 (blas) or 4e5 (flash) products per microsecond.
double mock_time_us(const Problem& problem, Pass pass, double products_per_us) {
  const double products =
      visible_pairs(problem) * static_cast<double>(problem.head_dim * problem.batch * problem.heads);
  const double forward = 10.0 + products / products_per_us;
  switch (pass) {
    case Pass::kFwd:
      return forward;
    case Pass::kBwd:
      return 2.5 * forward;
    case Pass::kFwdBwd:
      return 3.5 * forward;
  }
  return forward;
}

template <typename T>
void store(const Tensor& tensor, const std::vector<double>& values) {
  const auto view = tensor.as<T>();
  std::size_t next = 0;
  for (std::int64_t b = 0; b < view.extent[0]; ++b) {
    for (std::int64_t h = 0; h < view.extent[1]; ++h) {
      for (std::int64_t s = 0; s < view.extent[2]; ++s) {
        for (std::int64_t d = 0; d < view.extent[3]; ++d) {
          view.data[b * view.stride[0] + h * view.stride[1] + s * view.stride[2] + d * view.stride[3]] =
              from_float<T>(static_cast<float>(values[next++]));
        }
      }
    }
  }
}

void store(const Tensor& tensor, const std::vector<double>& values) {
  switch (tensor.dtype) {
    case Dtype::kFp32:
      return store<float>(tensor, values);
    case Dtype::kBf16:
      return store<Bf16>(tensor, values);
    case Dtype::kFp16:
      return store<Fp16>(tensor, values);
  }
}

class MockKernel : public PreparedKernel {
 public:
  MockKernel(const AttentionArgs& args, MockDevice& device, Fate fate, double products_per_us)
      : args_(args), device_(device), fate_(fate), products_per_us_(products_per_us) {}

  Result<void> launch(Pass pass) override {
    if (fate_ == Fate::kFailed) return fail(ErrorKind::kFailed, "the mock kernel was told to fail");
    if (fate_ == Fate::kLost) return fail(ErrorKind::kDeviceLost, "the mock kernel was told to lose the device");
    if (pass == Pass::kFwd) forward();
    if (pass == Pass::kBwd) backward();
    if (fate_ == Fate::kSleepy) device_.wait_in_samples(kSleep);
    if (fate_ == Fate::kSlow) device_.add_time_us(kSlowUs);
    device_.add_time_us(mock_time_us(args_.problem, pass, products_per_us_));
    return {};
  }

  std::string variant() const override { return "mock"; }

 private:
  void forward() {
    OracleForward result = oracle_forward(args_.problem, {args_.q, args_.k, args_.v, {}}, &device_.pool());
    if (fate_ == Fate::kIncorrect && !result.o.empty()) result.o.back() += 1.0;
    store(args_.o, result.o);
    for (std::size_t i = 0; i < result.lse.size(); ++i) args_.lse[i] = static_cast<float>(result.lse[i]);
  }

  void backward() {
    OracleBackward result = oracle_backward(args_.problem, {args_.q, args_.k, args_.v, args_.dout}, &device_.pool());
    if (fate_ == Fate::kIncorrect && !result.dv.empty()) result.dv.back() += 1.0;
    store(args_.dq, result.dq);
    store(args_.dk, result.dk);
    store(args_.dv, result.dv);
  }

  AttentionArgs args_;
  MockDevice& device_;
  Fate fate_;
  double products_per_us_;
};

std::optional<std::string> anything(const Problem&, Pass, const Target&) { return std::nullopt; }

std::optional<std::string> nothing(const Problem&, Pass, const Target&) {
  return "the mock kernel 'unsupported' declines every problem; use naive, blas or flash";
}

Footprint no_scratch(const Problem&, Pass, const Target&) { return {}; }

/// Scores in fp32, kept for the backward, and as much again as scratch of the backward.
Footprint scores(const Problem& p, Pass pass, const Target&) {
  const auto bytes = static_cast<std::size_t>(p.batch * p.heads * p.seq_q * p.seq_k) * sizeof(float);
  return {pass == Pass::kFwd ? 0 : bytes, bytes};
}

template <Fate kFate, int kProductsPerUs>
Result<std::unique_ptr<PreparedKernel>> prepare_mock(const AttentionArgs& args, Device& device) {
  return std::make_unique<MockKernel>(args, static_cast<MockDevice&>(device), kFate, kProductsPerUs);
}

Result<std::unique_ptr<PreparedKernel>> prepare_without_memory(const AttentionArgs&, Device&) {
  return fail(ErrorKind::kOutOfMemory, "the mock kernel was told to run out of memory");
}

KernelInfo mock_kernel(std::string_view name, std::string_view summary, bool materialises) {
  KernelInfo info;
  info.name = name;
  info.variant = "mock";
  info.summary = summary;
  info.source = "the oracle, with declared times";
  info.device = DeviceKind::kMock;
  info.materialises = materialises;
  info.supports = &anything;
  info.footprint = materialises ? &scores : &no_scratch;
  info.tolerance = &default_tolerance;
  return info;
}

template <Fate kFate, int kProductsPerUs>
KernelInfo mock_kernel(std::string_view name, std::string_view summary, bool materialises) {
  KernelInfo info = mock_kernel(name, summary, materialises);
  info.prepare = &prepare_mock<kFate, kProductsPerUs>;
  return info;
}

Result<std::vector<DeviceFacts>> mock_devices() { return std::vector<DeviceFacts>{mock_facts()}; }

Result<std::unique_ptr<Device>> open_mock(int) { return std::make_unique<MockDevice>(); }

}  // namespace

const KernelInfo& mock_naive() {
  static const KernelInfo info =
      mock_kernel<Fate::kRight, 100000>("naive", "right, keeps the scores, declares the longest time", true);
  return info;
}

const KernelInfo& mock_blas() {
  static const KernelInfo info =
      mock_kernel<Fate::kRight, 200000>("blas", "right, keeps the scores, declares half the time of naive", true);
  return info;
}

const KernelInfo& mock_flash() {
  static const KernelInfo info = mock_kernel<Fate::kRight, 400000>(
      "flash", "right, keeps nothing, declares a quarter of the time of naive", false);
  return info;
}

const KernelInfo& mock_incorrect() {
  static const KernelInfo info =
      mock_kernel<Fate::kIncorrect, 400000>("incorrect", "wrong in one element: status incorrect", false);
  return info;
}

const KernelInfo& mock_unsupported() {
  static const KernelInfo info = [] {
    KernelInfo made =
        mock_kernel<Fate::kRight, 400000>("unsupported", "declines every problem: status unsupported", false);
    made.supports = &nothing;
    return made;
  }();
  return info;
}

const KernelInfo& mock_oom() {
  static const KernelInfo info = [] {
    KernelInfo made = mock_kernel("oom", "finds no memory when prepared: status oom", false);
    made.prepare = &prepare_without_memory;
    return made;
  }();
  return info;
}

const KernelInfo& mock_failed() {
  static const KernelInfo info =
      mock_kernel<Fate::kFailed, 400000>("failed", "its launch reports an error: status failed", false);
  return info;
}

const KernelInfo& mock_lost() {
  static const KernelInfo info =
      mock_kernel<Fate::kLost, 400000>("lost", "its launch loses the device: status device_lost", false);
  return info;
}

const KernelInfo& mock_slow() {
  static const KernelInfo info = mock_kernel<Fate::kSlow, 1>(
      "slow", "right, declares a minute and more for a launch: status timeout below a --time-limit of 6s", false);
  return info;
}

const KernelInfo& mock_sleepy() {
  static const KernelInfo info = mock_kernel<Fate::kSleepy, 400000>(
      "sleepy", "right, every sample takes 20 ms of real time: something to interrupt", false);
  return info;
}

const Backend& mock_backend() {
  static const Backend backend{DeviceKind::kMock, "mock", &mock_devices, &open_mock, &mock_kernels};
  return backend;
}

}  // namespace attnbench::kernels
