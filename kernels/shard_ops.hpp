// The contract of what a sharded training step does beside layers: casts and sums of what travels, norm and update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "bench/base/error.hpp"
#include "kernels/device/device.hpp"
#include "kernels/device/queues.hpp"
#include "kernels/dtype.hpp"

namespace attnbench::kernels {

/// to[i] = from[i], rounded to nearest even.
struct Cast {
  void* to = nullptr;
  Dtype to_dtype = Dtype::kFp32;
  const void* from = nullptr;
  Dtype from_dtype = Dtype::kFp32;
  std::int64_t count = 0;
};

/// out = parts[0] + parts[1] + ... added from left to right in fp32, or out + parts[0] + ... with `accumulate`. A part
/// may be `out` itself. On a GPU the parts may be memory of other ranks on the same one.
struct OrderedSum {
  float* out = nullptr;
  bool accumulate = false;
  std::span<const void* const> parts;
  Dtype wire = Dtype::kFp32;
  std::int64_t count = 0;
};

/// Fills `to` with NaN.
struct FillNan {
  void* to = nullptr;
  Dtype dtype = Dtype::kFp32;
  std::int64_t count = 0;
};

/// What a rank tells the others at the end of a step: kStepNumbers doubles.
inline constexpr std::size_t kStepNumbers = 4;
enum StepNumber : std::size_t { kSquares, kLoss };

/// numbers[kSquares] = sum of squares of the gradient in double, the same in every run, 0 without a gradient;
/// numbers[kLoss] = mean of the losses.
struct WriteNumbers {
  const float* gradient = nullptr;
  std::int64_t count = 0;
  const float* losses = nullptr;
  int micro_batches = 1;
  double* numbers = nullptr;
};

/// What all ranks conclude from the numbers: kVerdictNumbers doubles. The step counts updates and lives here from run
/// to run; norm is that of the mean gradient, scale what the optimizer multiplies gradients by.
inline constexpr std::size_t kVerdictNumbers = 8;
enum VerdictNumber : std::size_t { kMeanLoss, kNorm, kScale, kApply, kStep, kRate, kUnbias };

struct OptimizerFactors {
  bool adamw = true;  // else plain gradient descent
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

struct Judge {
  const double* numbers = nullptr;  // [ranks, kStepNumbers]
  int ranks = 1;
  bool replicated = false;  // all ranks have the whole gradient: the first one's squares are those of all
  double gradient_scale = 1;
  double clip_norm = 0;        // 0: no clipping
  bool skip_infinite = false;  // no update where the norm is not finite
  OptimizerFactors optimizer;
  double* verdict = nullptr;
};

/// One update of fp32 arrays, unless the verdict says to skip it. The moments are null for plain gradient descent.
struct Update {
  OptimizerFactors optimizer;
  const double* verdict = nullptr;
  float* weight = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  std::int64_t count = 0;
};

/// Enqueues on the queue (CUDA: compute where none is named) or runs (CPU); allocates nothing.
class ShardOps {
 public:
  virtual ~ShardOps() = default;
  virtual base::Result<void> run(const Cast& call, Queue queue) = 0;
  virtual base::Result<void> run(const OrderedSum& call, Queue queue) = 0;
  virtual base::Result<void> run(const FillNan& call) = 0;
  virtual base::Result<void> run(const WriteNumbers& call) = 0;
  virtual base::Result<void> run(const Judge& call) = 0;
  virtual base::Result<void> run(const Update& call) = 0;
};

}  // namespace attnbench::kernels
