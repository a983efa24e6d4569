// Conversions between strided tensors and rows of fp32.
#include "kernels/cpu/rows.hpp"

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

std::optional<std::string> cpu_declines(const Problem& problem, Pass, const Target&) {
  if (problem.head_dim > kMaxHeadDim) {
    return "head_dim " + std::to_string(problem.head_dim) + " is above " + std::to_string(kMaxHeadDim) +
           ", the largest that CPU kernels take";
  }
  if (!std::isfinite(problem.scale)) return "scale is not a finite number";
  return std::nullopt;
}

}  // namespace attnbench::kernels
