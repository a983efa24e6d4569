// What layers are made with: the products and operations of a device, and the layout of memory that the engine owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "fsdp/layer.hpp"
#include "kernels/gemm.hpp"
#include "kernels/layer_ops.hpp"

namespace attnbench::fsdp {

/// Hands out parts of one block of memory, each aligned to 256 bytes; with a null base it only adds up sizes.
class Layout {
 public:
  explicit Layout(void* base) : base_(static_cast<std::byte*>(base)) {}

  void* take(std::size_t bytes) {
    const std::size_t at = used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return base_ == nullptr ? nullptr : base_ + at;
  }
  void* take(std::int64_t elements, Dtype dtype) {
    return take(static_cast<std::size_t>(elements) * kernels::size_of(dtype));
  }
  float* floats(std::int64_t count) { return static_cast<float*>(take(count, Dtype::kFp32)); }

  std::size_t bytes() const { return used_; }

 private:
  static constexpr std::size_t kAlignment = 256;
  std::byte* base_;
  std::size_t used_ = 0;
};

/// The products and operations of a device's backend.
///
/// Errors  kAbsent: the backend has none
struct Tools {
  const kernels::GemmLibrary* gemm = nullptr;
  std::unique_ptr<kernels::LayerOps> ops;

  static base::Result<Tools> of(Device& device);
};

/// The attention kernel named by `word` ("flash", "flash:highway") for the device: the first of that name that takes
/// the problem, forward and backward. auto: the first flash, else naive, that is held to the project's tolerance of the
/// dtype; a flash that splits fp32 into 16-bit planes is not.
///
/// Errors  kUnsupported, with the last refusal's reason
base::Result<const kernels::KernelInfo*> find_attention(std::string_view word, const kernels::Problem& problem,
                                                        Device& device, bool deterministic);

/// Rows and columns of a product with one or several weights W_i [out, in] of equal shape, their results side by side.
struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;    // of one weight
  std::int64_t parts = 1;  // weights
  Dtype compute = Dtype::kFp32;
  Dtype gradient = Dtype::kFp32;

  double flop() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out * parts);
  }
};

/// y = x W^T and its gradients. Weights that are neighbours in memory are taken as one matrix of parts * out rows.
///
/// Shapes  x, dx [rows, in]   y, dy [rows, parts * out]   W_i, dW_i [out, in]
/// Memory  one workspace for all products, workspace_bytes
class Linear {
 public:
  static base::Result<std::size_t> workspace_bytes(const LinearShape& shape, Device& device);
  static base::Result<Linear> make(const LinearShape& shape, void* workspace, Device& device);

  /// y = x W^T, plus addend where it is not null.
  base::Result<void> forward(std::span<const void* const> weights, const void* x, const void* addend, void* y);
  /// dx = dy W
  base::Result<void> input_gradient(std::span<const void* const> weights, const void* dy, void* dx);
  /// dW_i = dy_i^T x, where it is asked for.
  base::Result<void> weight_gradient(std::span<const GradTarget> grads, const void* dy, const void* x);

 private:
  using Product = std::unique_ptr<kernels::PreparedGemm>;
  const void* part(const void* rows, std::int64_t index) const;
  void* part(void* rows, std::int64_t index) const;

  LinearShape shape_;
  Product forward_all_, forward_one_, input_all_, input_one_, weight_all_, weight_one_;
};

}  // namespace attnbench::fsdp
