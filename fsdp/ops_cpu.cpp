// Loops over chunks of 64 Ki elements on the device's threads.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "fsdp/ops.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::fsdp {
namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 16;

template <typename To, typename From>
void cast_elements(To* to, const From* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = kernels::from_float<To>(kernels::to_float(from[i]));
}

template <typename To>
void cast_to(To* to, const void* from, Dtype dtype, std::int64_t begin, std::int64_t count) {
  switch (dtype) {
    case Dtype::kFp32:
      return cast_elements(to + begin, static_cast<const float*>(from) + begin, count);
    case Dtype::kBf16:
      return cast_elements(to + begin, static_cast<const kernels::Bf16*>(from) + begin, count);
    case Dtype::kFp16:
      return cast_elements(to + begin, static_cast<const kernels::Fp16*>(from) + begin, count);
  }
}

/// Factors of one AdamW update, in double; the update itself is in fp32.
struct AdamFactors {
  AdamFactors(const OptimizerOptions& options, const UpdateStep& step)
      : gradient_scale(static_cast<float>(step.gradient_scale)),
        beta1(static_cast<float>(options.beta1)),
        beta2(static_cast<float>(options.beta2)),
        rest1(static_cast<float>(1 - options.beta1)),
        rest2(static_cast<float>(1 - options.beta2)),
        keep(static_cast<float>(1 - options.lr * options.weight_decay)),
        rate(static_cast<float>(options.lr / (1 - std::pow(options.beta1, static_cast<double>(step.step))))),
        unbias(static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, static_cast<double>(step.step))))),
        eps(static_cast<float>(options.eps)) {}

  float gradient_scale, beta1, beta2, rest1, rest2, keep, rate, unbias, eps;
};

void adamw(const AdamFactors& f, const UpdateArrays& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const float gradient = a.gradient[i] * f.gradient_scale;
    a.first[i] = f.beta1 * a.first[i] + f.rest1 * gradient;
    a.second[i] = f.beta2 * a.second[i] + f.rest2 * gradient * gradient;
    a.weight[i] = f.keep * a.weight[i] - f.rate * a.first[i] / (std::sqrt(a.second[i]) * f.unbias + f.eps);
  }
}

void sgd(const OptimizerOptions& options, const UpdateStep& step, const UpdateArrays& a, std::int64_t begin,
         std::int64_t end) {
  const auto scale = static_cast<float>(step.gradient_scale);
  const auto decay = static_cast<float>(options.weight_decay);
  const auto rate = static_cast<float>(options.lr);
  for (std::int64_t i = begin; i < end; ++i) {
    a.weight[i] -= rate * (a.gradient[i] * scale + decay * a.weight[i]);
  }
}

class CpuOps : public Ops {
 public:
  CpuOps(kernels::CpuDevice& device, std::int64_t largest)
      : device_(device), sums_(static_cast<std::size_t>((largest + kChunk - 1) / kChunk)) {}

  void cast(void* to, Dtype to_dtype, const void* from, Dtype from_dtype, std::int64_t count) override {
    for_chunks(count, [&](std::int64_t begin, std::int64_t length) {
      switch (to_dtype) {
        case Dtype::kFp32:
          return cast_to(static_cast<float*>(to), from, from_dtype, begin, length);
        case Dtype::kBf16:
          return cast_to(static_cast<kernels::Bf16*>(to), from, from_dtype, begin, length);
        case Dtype::kFp16:
          return cast_to(static_cast<kernels::Fp16*>(to), from, from_dtype, begin, length);
      }
    });
  }

  /// Chunks are added in order, so the threads make no difference.
  double sum_of_squares(const float* values, std::int64_t count) override {
    const std::int64_t chunks = (count + kChunk - 1) / kChunk;
    for_chunks(count, [&](std::int64_t begin, std::int64_t length) {
      double sum = 0;
      for (std::int64_t i = begin; i < begin + length; ++i) {
        sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      }
      sums_[static_cast<std::size_t>(begin / kChunk)] = sum;
    });
    double total = 0;
    for (std::int64_t i = 0; i < chunks; ++i) total += sums_[static_cast<std::size_t>(i)];
    return total;
  }

  void update(const OptimizerOptions& options, const UpdateStep& step, const UpdateArrays& arrays) override {
    const AdamFactors factors(options, step);
    for_chunks(arrays.count, [&](std::int64_t begin, std::int64_t length) {
      if (options.kind == OptimizerKind::kAdamW) {
        adamw(factors, arrays, begin, begin + length);
      } else {
        sgd(options, step, arrays, begin, begin + length);
      }
    });
  }

  void fill_nan(void* to, Dtype dtype, std::int64_t count) override {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (std::int64_t i = 0; i < count; ++i) cast_nan(to, dtype, i, nan);
  }

 private:
  static void cast_nan(void* to, Dtype dtype, std::int64_t i, float nan) {
    if (dtype == Dtype::kFp32) {
      static_cast<float*>(to)[i] = nan;
    } else {
      static_cast<std::uint16_t*>(to)[i] = 0x7fff;  // a NaN in both half types
    }
  }

  template <typename Body>
  void for_chunks(std::int64_t count, const Body& body) {
    if (count <= kChunk) {
      if (count > 0) body(std::int64_t{0}, count);
      return;
    }
    const auto task = [&](std::int64_t chunk, int) { body(chunk * kChunk, std::min(kChunk, count - chunk * kChunk)); };
    // A reference fits into std::function without an allocation.
    device_.pool().parallel_for((count + kChunk - 1) / kChunk, std::cref(task));
  }

  kernels::CpuDevice& device_;
  std::vector<double> sums_;
};

}  // namespace

base::Result<std::unique_ptr<Ops>> make_ops(Device& device, std::int64_t largest) {
  if (device.facts().kind == kernels::DeviceKind::kCpu) {
    return std::make_unique<CpuOps>(static_cast<kernels::CpuDevice&>(device), largest);
  }
  return base::fail(base::ErrorKind::kUnsupported,
                    "fsdp runs on the processor alone; " + device.facts().id + " is another device: try --device cpu");
}

}  // namespace attnbench::fsdp
