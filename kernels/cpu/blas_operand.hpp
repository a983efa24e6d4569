// How the blas kernel holds its tensors and matrices, in the element type that its products read.
#pragma once

#include <cstdint>

#include "kernels/cpu/rows.hpp"

namespace attnbench::kernels {

/// A tensor as rows that a product can read or write: itself where its rows are contiguous and of the wanted type, else
/// a copy, made at the start of a launch or, for a result, written back at the end.
///
/// A row of a copy takes D floats of room whatever its type: a row of another copy in the same place, written by
/// another thread as fp32, then overlaps that row and no other.
class Operand {
 public:
  Operand() = default;
  /// Shapes  copy [B, heads, S, D] fp32   finite [B, heads], or null: every head is taken to be finite
  Operand(const Tensor& tensor, Dtype type, float* copy, unsigned char* finite = nullptr);

  const Tensor& tensor() const { return tensor_; }
  Dtype type() const { return type_; }
  /// From row to row, in elements.
  std::int64_t stride() const { return stride_[2]; }
  void* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const std::int64_t offset = b * stride_[0] + h * stride_[1] + i * stride_[2];
    return base_ + offset * static_cast<std::int64_t>(size_of(type_));
  }
  /// Of a result, which always is fp32.
  float* floats(std::int64_t b, std::int64_t h, std::int64_t i) const { return static_cast<float*>(row(b, h, i)); }

  /// Whether a launch must begin with load_head() of every head.
  bool must_load() const { return !direct_ || finite_ != nullptr; }
  /// Copies one head where that is needed, and notes whether it holds an infinity or NaN where that is to be known.
  void load_head(std::int64_t b, std::int64_t h);
  bool finite(std::int64_t b, std::int64_t h) const { return finite_ == nullptr || finite_[head(b, h)] != 0; }
  /// Writes rows [begin, begin + count) of a result to the tensor.
  void store(std::int64_t b, std::int64_t h, std::int64_t begin, std::int64_t count) const;

 private:
  std::size_t head(std::int64_t b, std::int64_t h) const { return static_cast<std::size_t>(b * tensor_.extent[1] + h); }

  Tensor tensor_;
  Dtype type_ = Dtype::kFp32;
  unsigned char* base_ = nullptr;
  std::int64_t stride_[3] = {0, 0, 0};
  bool direct_ = false;
  unsigned char* finite_ = nullptr;  // by head
};

/// Rows of a matrix of weights or of their gradients.
struct MatrixRows {
  unsigned char* data = nullptr;
  std::int64_t stride = 0;  // elements
  Dtype type = Dtype::kFp32;

  MatrixRows from(std::int64_t row, std::int64_t column) const {
    return {data + (row * stride + column) * static_cast<std::int64_t>(size_of(type)), stride, type};
  }
  float at(std::int64_t row, std::int64_t column) const {
    const std::int64_t offset = row * stride + column;
    return type == Dtype::kFp32 ? reinterpret_cast<const float*>(data)[offset]
                                : to_float(reinterpret_cast<const Bf16*>(data)[offset]);
  }
};

}  // namespace attnbench::kernels
