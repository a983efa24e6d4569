// Tensors of the blas kernel, copied where a product cannot read or write them.
#include "kernels/cpu/blas_operand.hpp"

#include <algorithm>
#include <array>

#include "kernels/cpu/softmax.hpp"

namespace attnbench::kernels {

Operand::Operand(const Tensor& tensor, Dtype type, float* copy, unsigned char* finite)
    : tensor_(tensor),
      type_(type),
      direct_(tensor.dtype == type && tensor.stride[3] == 1 && tensor.stride[2] >= tensor.extent[3]),
      finite_(finite) {
  const std::int64_t room = tensor.extent[3] * static_cast<std::int64_t>(sizeof(float) / size_of(type));
  base_ = static_cast<unsigned char*>(direct_ ? tensor.data : static_cast<void*>(copy));
  stride_[2] = direct_ ? tensor.stride[2] : room;
  stride_[1] = direct_ ? tensor.stride[1] : tensor.extent[2] * room;
  stride_[0] = direct_ ? tensor.stride[0] : tensor.extent[1] * tensor.extent[2] * room;
}

void Operand::load_head(std::int64_t b, std::int64_t h) {
  const bool look = finite_ != nullptr;
  const std::int64_t dim = tensor_.extent[3];
  std::array<float, kMaxHeadDim> buffer;
  bool finite = true;
  for (std::int64_t i = 0; i < tensor_.extent[2]; ++i) {
    float* const target = type_ == Dtype::kFp32 ? floats(b, h, i) : buffer.data();
    if (!direct_ || type_ != Dtype::kFp32) load_row(tensor_, b, h, i, target);
    if (!direct_ && type_ != Dtype::kFp32) narrow_row(target, dim, static_cast<Bf16*>(row(b, h, i)));
    if (look) finite = all_finite(target, dim) && finite;
  }
  if (look) finite_[head(b, h)] = finite ? 1 : 0;
}

void Operand::store(std::int64_t b, std::int64_t h, std::int64_t begin, std::int64_t count) const {
  if (direct_) return;
  for (std::int64_t i = begin; i < begin + count; ++i) store_row(tensor_, b, h, i, floats(b, h, i));
}

}  // namespace attnbench::kernels
