// Rows of strided tensors of any dtype, to and from contiguous fp32: where every materialising CPU kernel begins and
// ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel.hpp"

namespace attnbench::kernels {

/// Largest head_dim of the CPU kernels: rows live in fixed arrays of this length.
inline constexpr std::int64_t kMaxHeadDim = 256;

/// Widens row i of head (b, h), exact. Shapes  target [D]
void load_row(const Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i, float* target);

/// Rounds row i of head (b, h) to the tensor's dtype. Shapes  source [D]
void store_row(const Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i, const float* source);

/// c[j] += sum over r of a[r] * b[r * stride + j], j in [0, columns).
void add_row_times_matrix(float* c, const float* a, const float* b, std::int64_t rows, std::int64_t stride,
                          std::int64_t columns);

/// True when no value is infinite or NaN.
bool all_finite(const float* values, std::int64_t count);

/// The reason why no CPU kernel takes the problem, if there is one.
std::optional<std::string> cpu_declines(const Problem& problem, Pass pass, const Target& target);

/// Hands out parts of one block of scratch memory, each aligned to 64 bytes; with a null base it only adds up sizes.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <typename T>
  T* take(std::int64_t count) {
    const std::size_t at = used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }

  std::size_t bytes() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace attnbench::kernels
