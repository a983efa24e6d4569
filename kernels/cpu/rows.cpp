// Conversions between strided tensors and rows of fp32.
#include "kernels/cpu/rows.hpp"

#include <bit>

namespace attnbench::kernels {
namespace {

std::int64_t offset_of(const Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i) {
  return b * tensor.stride[0] + h * tensor.stride[1] + i * tensor.stride[2];
}

template <typename T>
void load(const Tensor& tensor, std::int64_t offset, float* target) {
  const T* source = static_cast<const T*>(tensor.data) + offset;
  const std::int64_t dim = tensor.extent[3];
  const std::int64_t stride = tensor.stride[3];
  if (stride == 1) {
    for (std::int64_t d = 0; d < dim; ++d) target[d] = to_float(source[d]);
  } else {
    for (std::int64_t d = 0; d < dim; ++d) target[d] = to_float(source[d * stride]);
  }
}

template <typename T>
void store(const Tensor& tensor, std::int64_t offset, const float* source) {
  T* target = static_cast<T*>(tensor.data) + offset;
  for (std::int64_t d = 0; d < tensor.extent[3]; ++d) target[d * tensor.stride[3]] = from_float<T>(source[d]);
}

}  // namespace

void load_row(const Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i, float* target) {
  const std::int64_t offset = offset_of(tensor, b, h, i);
  switch (tensor.dtype) {
    case Dtype::kFp32:
      return load<float>(tensor, offset, target);
    case Dtype::kBf16:
      return load<Bf16>(tensor, offset, target);
    case Dtype::kFp16:
      return load<Fp16>(tensor, offset, target);
  }
}

void store_row(const Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i, const float* source) {
  const std::int64_t offset = offset_of(tensor, b, h, i);
  switch (tensor.dtype) {
    case Dtype::kFp32:
      return store<float>(tensor, offset, source);
    case Dtype::kBf16:
      return store<Bf16>(tensor, offset, source);
    case Dtype::kFp16:
      return store<Fp16>(tensor, offset, source);
  }
}

void add_row_times_matrix(float* c, const float* a, const float* b, std::int64_t rows, std::int64_t stride,
                          std::int64_t columns) {
  // Four rows of b at a time, so that c is loaded and stored once for the four.
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float a0 = a[r], a1 = a[r + 1], a2 = a[r + 2], a3 = a[r + 3];
    const float* b0 = b + r * stride;
    const float* b1 = b0 + stride;
    const float* b2 = b1 + stride;
    const float* b3 = b2 + stride;
    for (std::int64_t j = 0; j < columns; ++j) c[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
  }
  for (; r < rows; ++r) {
    for (std::int64_t j = 0; j < columns; ++j) c[j] += a[r] * b[r * stride + j];
  }
}

bool all_finite(const float* values, std::int64_t count) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  std::uint32_t bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent);
  }
  return bad == 0;
}

std::optional<std::string> cpu_declines(const Problem& problem, Pass, const Target&) {
  if (problem.head_dim > kMaxHeadDim) {
    return "head_dim " + std::to_string(problem.head_dim) + " is above " + std::to_string(kMaxHeadDim) +
           ", the largest that CPU kernels take";
  }
  if (!std::isfinite(problem.scale)) return "scale is not a finite number";
  return std::nullopt;
}

}  // namespace attnbench::kernels
