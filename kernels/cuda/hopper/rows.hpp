// Where the rows of a tensor lie, for kernels that read or write them themselves.
#pragma once

#include "kernels/tensor.hpp"

namespace attnbench::kernels::hopper {

/// A [B, H, S, D] tensor of 16-bit elements in rows of 16-byte units. Strides in elements, innermost 1.
struct Rows {
  void* data;
  long long batch, head, row;
};

inline Rows rows_of(const Tensor& t) { return {t.data, t.stride[0], t.stride[1], t.stride[2]}; }

}  // namespace attnbench::kernels::hopper
