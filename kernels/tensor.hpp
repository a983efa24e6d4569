// Strided views of tensors: typed ones for kernels, an untyped one for the contract between harness and kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/dtype.hpp"

namespace attnbench::kernels {

/// Pointer, extents and strides (in elements) of a tensor somewhere; owns nothing.
template <typename T, int Rank>
struct TensorView {
  T* data = nullptr;
  std::array<std::int64_t, Rank> extent{};
  std::array<std::int64_t, Rank> stride{};

  std::int64_t size() const {
    std::int64_t product = 1;
    for (const std::int64_t e : extent) product *= e;
    return product;
  }
};

/// A [B, H, S, D] tensor whose element type is known at run time. Strides in elements, any value, D's included.
struct Tensor {
  void* data = nullptr;
  Dtype dtype = Dtype::kFp32;
  std::array<std::int64_t, 4> extent{};
  std::array<std::int64_t, 4> stride{};

  std::int64_t size() const { return extent[0] * extent[1] * extent[2] * extent[3]; }

  template <typename T>
  TensorView<T, 4> as() const {
    return {static_cast<T*>(data), extent, stride};
  }
};

/// Dense row-major strides of [B, H, S, D].
constexpr std::array<std::int64_t, 4> dense_strides(const std::array<std::int64_t, 4>& extent) {
  return {extent[1] * extent[2] * extent[3], extent[2] * extent[3], extent[3], 1};
}

}  // namespace attnbench::kernels
