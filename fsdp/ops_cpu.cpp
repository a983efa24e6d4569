// Loops over chunks of 64 Ki elements on the device's threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fsdp/ops.hpp"
#include "fsdp/reduce.hpp"
#include "kernels/catalog.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;
using kernels::OptimizerFactors;
using kernels::Queue;

constexpr double kClipEps = 1e-6;  // as is custom: min(1, clip / (norm + 1e-6))
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

/// Factors of one update, in double; the update itself is in fp32.
struct Factors {
  explicit Factors(const kernels::Update& call)
      : gradient_scale(static_cast<float>(call.verdict[kernels::kScale])),
        beta1(static_cast<float>(call.optimizer.beta1)),
        beta2(static_cast<float>(call.optimizer.beta2)),
        rest1(static_cast<float>(1 - call.optimizer.beta1)),
        rest2(static_cast<float>(1 - call.optimizer.beta2)),
        keep(static_cast<float>(1 - call.optimizer.lr * call.optimizer.weight_decay)),
        rate(static_cast<float>(call.verdict[kernels::kRate])),
        unbias(static_cast<float>(call.verdict[kernels::kUnbias])),
        eps(static_cast<float>(call.optimizer.eps)),
        lr(static_cast<float>(call.optimizer.lr)),
        decay(static_cast<float>(call.optimizer.weight_decay)) {}

  float gradient_scale, beta1, beta2, rest1, rest2, keep, rate, unbias, eps, lr, decay;
};

void adamw(const Factors& f, const kernels::Update& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const float gradient = a.gradient[i] * f.gradient_scale;
    a.first[i] = f.beta1 * a.first[i] + f.rest1 * gradient;
    a.second[i] = f.beta2 * a.second[i] + f.rest2 * gradient * gradient;
    a.weight[i] = f.keep * a.weight[i] - f.rate * a.first[i] / (std::sqrt(a.second[i]) * f.unbias + f.eps);
  }
}

void sgd(const Factors& f, const kernels::Update& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    a.weight[i] -= f.lr * (a.gradient[i] * f.gradient_scale + f.decay * a.weight[i]);
  }
}

class CpuOps : public Ops {
 public:
  CpuOps(kernels::CpuDevice& device, std::int64_t largest)
      : device_(device), sums_(static_cast<std::size_t>((largest + kChunk - 1) / kChunk)) {}

  Result<void> run(const kernels::Cast& call, Queue) override {
    for_chunks(call.count, [&](std::int64_t begin, std::int64_t length) {
      switch (call.to_dtype) {
        case Dtype::kFp32:
          return cast_to(static_cast<float*>(call.to), call.from, call.from_dtype, begin, length);
        case Dtype::kBf16:
          return cast_to(static_cast<kernels::Bf16*>(call.to), call.from, call.from_dtype, begin, length);
        case Dtype::kFp16:
          return cast_to(static_cast<kernels::Fp16*>(call.to), call.from, call.from_dtype, begin, length);
      }
    });
    return {};
  }

  Result<void> run(const kernels::OrderedSum& call, Queue) override {
    sum_in_order(call.out, call.accumulate, call.parts, call.wire, call.count);
    return {};
  }

  Result<void> run(const kernels::WriteNumbers& call) override {
    double loss = 0;
    for (int micro = 0; micro < call.micro_batches; ++micro) {
      loss += static_cast<double>(call.losses[micro]) / call.micro_batches;
    }
    call.numbers[kernels::kSquares] = call.gradient == nullptr ? 0.0 : sum_of_squares(call.gradient, call.count);
    call.numbers[kernels::kLoss] = loss;
    return {};
  }

  Result<void> run(const kernels::Judge& call) override {
    double squares = 0, loss = 0;
    for (int rank = 0; rank < call.ranks; ++rank) {
      const double* const numbers = call.numbers + static_cast<std::size_t>(rank) * kernels::kStepNumbers;
      if (rank == 0 || !call.replicated) squares += numbers[kernels::kSquares];
      loss += numbers[kernels::kLoss] / call.ranks;
    }
    const double norm = std::sqrt(squares) * call.gradient_scale;
    double* const v = call.verdict;
    v[kernels::kMeanLoss] = loss;
    v[kernels::kNorm] = norm;
    v[kernels::kScale] =
        call.gradient_scale * (call.clip_norm > 0 ? std::min(1.0, call.clip_norm / (norm + kClipEps)) : 1.0);
    v[kernels::kApply] = !call.skip_infinite || std::isfinite(norm) ? 1 : 0;
    if (v[kernels::kApply] == 0) return {};
    v[kernels::kStep] += 1;
    v[kernels::kRate] = call.optimizer.lr / (1 - std::pow(call.optimizer.beta1, v[kernels::kStep]));
    v[kernels::kUnbias] = 1 / std::sqrt(1 - std::pow(call.optimizer.beta2, v[kernels::kStep]));
    return {};
  }

  Result<void> run(const kernels::Update& call) override {
    if (call.verdict[kernels::kApply] == 0) return {};
    const Factors factors(call);
    for_chunks(call.count, [&](std::int64_t begin, std::int64_t length) {
      if (call.optimizer.adamw) {
        adamw(factors, call, begin, begin + length);
      } else {
        sgd(factors, call, begin, begin + length);
      }
    });
    return {};
  }

  Result<void> run(const kernels::FillNan& call) override {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (std::int64_t i = 0; i < call.count; ++i) cast_nan(call.to, call.dtype, i, nan);
    return {};
  }

 private:
  /// Chunks are added in order, so the threads make no difference.
  double sum_of_squares(const float* values, std::int64_t count) {
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
    device_.pool().parallel_for((count + kChunk - 1) / kChunk, task);
  }

  kernels::CpuDevice& device_;
  std::vector<double> sums_;
};

}  // namespace

base::Result<std::unique_ptr<Ops>> make_ops(Device& device, std::int64_t largest) {
  if (device.facts().kind == kernels::DeviceKind::kCpu) {
    return std::make_unique<CpuOps>(static_cast<kernels::CpuDevice&>(device), largest);
  }
  const std::string kind(to_string(device.facts().kind));
  const auto backend = kernels::find_backend(kind);
  if (!backend) return tl::unexpected(backend.error());
  if ((*backend)->shard_ops == nullptr) {
    return base::fail(base::ErrorKind::kAbsent, "the " + kind + " backend trains no model; use --device cpu or cuda:0");
  }
  return (*backend)->shard_ops(device);
}

}  // namespace attnbench::fsdp
