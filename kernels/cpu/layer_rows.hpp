// The loops behind layer_ops.hpp over a range of rows, compiled once per instruction set and element type.
#pragma once

#include <cstdint>

#include "kernels/layer_ops.hpp"

namespace attnbench::kernels {

/// One function per loop; ranges are half-open. Sums are made in an order that the range alone decides.
struct LayerRows {
  void (*rms_norm)(const RmsNorm& call, std::int64_t begin, std::int64_t end);
  /// dgain_part [width] is assigned the sum over the range.
  void (*rms_norm_backward)(const RmsNormBackward& call, std::int64_t begin, std::int64_t end, float* dgain_part);
  /// Columns [begin, end) of dgain from `parts` rows of partial sums.
  void (*rms_norm_gain)(const RmsNormBackward& call, std::int64_t parts, std::int64_t begin, std::int64_t end);
  void (*rotary)(const Rotary& call, std::int64_t begin, std::int64_t end);  // positions
  void (*swiglu)(const SwiGlu& call, std::int64_t begin, std::int64_t end);
  void (*swiglu_backward)(const SwiGluBackward& call, std::int64_t begin, std::int64_t end);
  /// Rows of the table; the tokens of row v are order[first[v] .. first[v + 1]).
  void (*embedding_backward)(const EmbeddingBackward& call, const std::int32_t* first, const std::int32_t* order,
                             std::int64_t begin, std::int64_t end);
  void (*cross_entropy)(const CrossEntropy& call, std::int64_t begin, std::int64_t end);  // lse only
  void (*cross_entropy_backward)(const CrossEntropyBackward& call, std::int64_t begin, std::int64_t end);
  void (*relu)(const Relu& call, std::int64_t begin, std::int64_t end);  // elements
  void (*relu_backward)(const ReluBackward& call, std::int64_t begin, std::int64_t end);
  void (*widen)(const void* source, float* target, std::int64_t count);
  void (*narrow)(const float* source, void* target, std::int64_t count);
  void (*add_narrow)(const float* source, const void* addend, void* target, std::int64_t count);
};

/// The loops for a dtype on the best instruction set of this processor.
const LayerRows& layer_rows(Dtype dtype);

}  // namespace attnbench::kernels
