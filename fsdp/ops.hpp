// The element-wise work of the engine on the memory of its device: casts, sums, and the optimizer's update.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/base/error.hpp"
#include "fsdp/layer.hpp"
#include "fsdp/options.hpp"

namespace attnbench::fsdp {

/// Where the optimizer works: fp32 arrays of `count` elements. The moments are null for sgd.
struct UpdateArrays {
  float* weight = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  std::int64_t count = 0;
};

/// One update: `step` counts from 1, gradients are multiplied by `gradient_scale` first.
struct UpdateStep {
  std::int64_t step = 1;
  double gradient_scale = 1;
};

/// Enqueued on the device's stream, or done on its threads when the call returns.
class Ops {
 public:
  virtual ~Ops() = default;
  /// to[i] = from[i], rounded to nearest even.
  virtual void cast(void* to, Dtype to_dtype, const void* from, Dtype from_dtype, std::int64_t count) = 0;
  /// Sum of squares in double, the same in every run.
  virtual double sum_of_squares(const float* values, std::int64_t count) = 0;
  virtual void update(const OptimizerOptions& options, const UpdateStep& step, const UpdateArrays& arrays) = 0;
  virtual void fill_nan(void* to, Dtype dtype, std::int64_t count) = 0;
};

/// For arrays of up to `largest` elements.
///
/// Errors  kUnsupported: the engine does not run on this kind of device
base::Result<std::unique_ptr<Ops>> make_ops(Device& device, std::int64_t largest);

}  // namespace attnbench::fsdp
