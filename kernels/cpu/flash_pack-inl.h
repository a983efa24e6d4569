// Reading, writing and packing rows for the flash kernel, written once for every instruction set.
#if defined(ATTNBENCH_FLASH_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTNBENCH_FLASH_PACK_INL_H_
#undef ATTNBENCH_FLASH_PACK_INL_H_
#else
#define ATTNBENCH_FLASH_PACK_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/flash_gemm-inl.h"
#include "kernels/kernel.hpp"

HWY_BEFORE_NAMESPACE();
namespace attnbench::kernels::HWY_NAMESPACE {

inline VF load_floats(const float* from) { return hn::LoadU(DF(), from); }

inline VF load_floats(const Bf16* from) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<std::uint16_t, DF> du16;
  const auto bits = hn::PromoteTo(du, hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

// A half's exponent and mantissa, moved to a float's place, are too small by 2^112; the product is exact, for
// subnormals too. Infinity and NaN then need the float's full exponent.
inline VF load_floats(const Fp16* from) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<std::uint16_t, DF> du16;
  const auto bits = hn::PromoteTo(du, hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const VF finite = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f));
  const VF special = hn::BitCast(d, hn::Or(magnitude, hn::Set(du, 0x7f800000u)));
  const VF value = hn::IfThenElse(hn::Ge(finite, hn::Set(d, 65536.0f)), special, finite);
  return hn::Or(value, hn::BitCast(d, sign));
}

/// Reads n elements `stride` apart as floats into `to` and zeroes it up to `width`.
template <typename T>
void read_row(const T* from, std::int64_t stride, std::int64_t n, std::int64_t width, float* HWY_RESTRICT to) {
  std::int64_t i = 0;
  if (stride == 1) {
    for (; i + lanes() <= n; i += lanes()) hn::StoreU(load_floats(from + i), DF(), to + i);
  }
  for (; i < n; ++i) to[i] = to_float(from[i * stride]);
  for (; i < width; ++i) to[i] = 0;
}

/// Row `row` of head `head` of batch entry `batch`, as floats.
inline void read_row(const Tensor& t, std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t width,
                     float* HWY_RESTRICT to) {
  const std::int64_t offset = batch * t.stride[0] + head * t.stride[1] + row * t.stride[2];
  const std::int64_t n = t.extent[3];
  switch (t.dtype) {
    case Dtype::kFp32:
      return read_row(static_cast<const float*>(t.data) + offset, t.stride[3], n, width, to);
    case Dtype::kBf16:
      return read_row(static_cast<const Bf16*>(t.data) + offset, t.stride[3], n, width, to);
    case Dtype::kFp16:
      return read_row(static_cast<const Fp16*>(t.data) + offset, t.stride[3], n, width, to);
  }
}

template <typename T>
void write_row(const float* HWY_RESTRICT from, float factor, std::int64_t n, T* to, std::int64_t stride) {
  if (stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from_float<T>(from[i] * factor);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * stride] = from_float<T>(from[i] * factor);
  }
}

/// Rounds from * factor to the tensor's element type.
inline void write_row(const float* HWY_RESTRICT from, float factor, const Tensor& t, std::int64_t batch,
                      std::int64_t head, std::int64_t row) {
  const std::int64_t offset = batch * t.stride[0] + head * t.stride[1] + row * t.stride[2];
  const std::int64_t n = t.extent[3];
  switch (t.dtype) {
    case Dtype::kFp32:
      return write_row(from, factor, n, static_cast<float*>(t.data) + offset, t.stride[3]);
    case Dtype::kBf16:
      return write_row(from, factor, n, static_cast<Bf16*>(t.data) + offset, t.stride[3]);
    case Dtype::kFp16:
      return write_row(from, factor, n, static_cast<Fp16*>(t.data) + offset, t.stride[3]);
  }
}

/// True when some element is infinite or NaN.
inline bool is_odd(const float* HWY_RESTRICT row, std::int64_t width) {
  VF sum = hn::Zero(DF());
  for (std::int64_t i = 0; i < width; i += lanes()) sum = hn::MulAdd(load_floats(row + i), hn::Zero(DF()), sum);
  return !hn::AllTrue(DF(), hn::Eq(sum, hn::Zero(DF())));
}

/// to = from * factor, whole vectors. Both may be the same row.
inline void scale_row(const float* from, float factor, std::int64_t width, float* to) {
  const VF f = hn::Set(DF(), factor);
  for (std::int64_t i = 0; i < width; i += lanes()) hn::StoreU(hn::Mul(load_floats(from + i), f), DF(), to + i);
}

/// Copies a row into panels [width / panel][panel_rows][panel], as add_product() wants its right operand.
inline void pack_row(const float* HWY_RESTRICT from, float factor, std::int64_t width, std::int64_t panel_rows,
                     std::int64_t row, float* HWY_RESTRICT to) {
  const std::int64_t panel = panel_width();
  for (std::int64_t column = 0; column < width; column += panel) {
    const std::int64_t part = HWY_MIN(panel, width - column);
    scale_row(from + column, factor, part, to + column * panel_rows + row * part);
  }
}

#if HWY_TARGET != HWY_SCALAR
/// to[j * stride + i] = from[i * width + j] for i, j in [0, 4).
inline void transpose_4x4(const float* HWY_RESTRICT from, std::int64_t width, std::int64_t stride,
                          float* HWY_RESTRICT to) {
  const hn::FixedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + width);
  const auto r2 = hn::LoadU(d, from + 2 * width), r3 = hn::LoadU(d, from + 3 * width);
  const auto lower01 = hn::InterleaveLower(d, r0, r1), upper01 = hn::InterleaveUpper(d, r0, r1);
  const auto lower23 = hn::InterleaveLower(d, r2, r3), upper23 = hn::InterleaveUpper(d, r2, r3);
  hn::StoreU(hn::ConcatLowerLower(d, lower23, lower01), d, to);
  hn::StoreU(hn::ConcatUpperUpper(d, lower23, lower01), d, to + stride);
  hn::StoreU(hn::ConcatLowerLower(d, upper23, upper01), d, to + 2 * stride);
  hn::StoreU(hn::ConcatUpperUpper(d, upper23, upper01), d, to + 3 * stride);
}
#endif

/// Transposes `count` rows of `width` floats into one panel [depth][panel], as multiply() wants its right operand;
/// missing rows are zero.
inline void pack_transposed(const float* HWY_RESTRICT rows, std::int64_t width, std::int64_t count, std::int64_t depth,
                            float* HWY_RESTRICT to) {
  const std::int64_t panel = panel_width();
  std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  if (count == panel) {
    for (; done + 4 <= depth; done += 4) {
      for (std::int64_t key = 0; key < panel; key += 4) {
        transpose_4x4(rows + key * width + done, width, panel, to + done * panel + key);
      }
    }
  }
#endif
  for (std::int64_t k = done; k < depth; ++k) {
    for (std::int64_t key = 0; key < count; ++key) to[k * panel + key] = rows[key * width + k];
    for (std::int64_t key = count; key < panel; ++key) to[k * panel + key] = 0;
  }
}

}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
