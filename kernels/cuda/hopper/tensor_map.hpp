// Tensor maps: how the copy engine is told where a [B, H, S, D] tensor lies.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/tensor.hpp"

namespace attnbench::kernels::hopper {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// The driver's encoder, null where the driver has none.
inline EncodeTiled tensor_map_encoder() {
  static const EncodeTiled function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTiled>(entry) : nullptr;
  }();
  return function;
}

/// The copy engine wants rows of 16-byte units at 16-byte aligned places.
inline bool copy_engine_takes(const Tensor& t) {
  if (reinterpret_cast<std::uintptr_t>(t.data) % 16 != 0 || t.stride[3] != 1) return false;
  for (std::size_t i = 0; i < 3; ++i) {
    if (t.extent[i] > 1 && (t.stride[i] <= 0 || t.stride[i] % 8 != 0)) return false;
  }
  return true;
}

/// Boxes of `rows` x `columns` elements, swizzled over a row's width, of a 16-bit tensor; what lies outside arrives as
/// zeros. False: the driver declines.
///
/// Needs  columns 16, 32 or 64: the widths that are swizzled
inline bool make_tensor_map(CUtensorMap& map, const Tensor& t, int rows, int columns = 64) {
  cuuint64_t extent[4], stride[3];
  for (std::size_t i = 0; i < 4; ++i) extent[i] = static_cast<cuuint64_t>(t.extent[3 - i]);
  for (std::size_t i = 0; i < 3; ++i) {
    // A stride of an extent of one is never used, but must be valid.
    stride[i] = t.extent[2 - i] > 1 ? static_cast<cuuint64_t>(t.stride[2 - i]) * 2 : 16;
  }
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(columns), static_cast<cuuint32_t>(rows), 1, 1};
  const cuuint32_t step[4] = {1, 1, 1, 1};
  const auto type = t.dtype == Dtype::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto swizzle = columns == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                       : columns == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                       : CU_TENSOR_MAP_SWIZZLE_32B;
  return tensor_map_encoder()(&map, type, 4, t.data, extent, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace attnbench::kernels::hopper
