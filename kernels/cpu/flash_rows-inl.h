// Vector exponential, packing and mask edges of the flash kernel, written once for every instruction set.
#if defined(ATTNBENCH_FLASH_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTNBENCH_FLASH_ROWS_INL_H_
#undef ATTNBENCH_FLASH_ROWS_INL_H_
#else
#define ATTNBENCH_FLASH_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/flash_gemm-inl.h"
#include "kernels/kernel.hpp"

HWY_BEFORE_NAMESPACE();
namespace attnbench::kernels::HWY_NAMESPACE {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLargest = std::numeric_limits<float>::max();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// 2^x for x <= 0 within 2.1e-7 relative; exactly 0 from -127 down (-inf included), NaN for NaN.
///
/// x is split into an integer n and |r| <= 1/2. Adding 1.5 * 2^23 + 127 rounds x to an integer and leaves n + 127 in
/// the low bits, where a shift makes them the exponent of 2^n (0 for n = -127). 2^r is 1 + r g(r), g a polynomial
/// through the Chebyshev nodes of [-1/2, 1/2]. The scale is multiplied, not added to the exponent, so that a NaN stays
/// one.
HWY_INLINE VF exp2_negative(VF x) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const VF magic = hn::Set(d, 12582912.0f + 127.0f);
  x = hn::Max(hn::Set(d, -127.0f), x);
  const VF shifted = hn::Add(x, magic);
  const VF r = hn::Sub(x, hn::Sub(shifted, magic));
  VF g = hn::MulAdd(hn::Set(d, 0.0013381302f), r, hn::Set(d, 0.0096663684f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.0555038117f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.2402234972f));
  g = hn::MulAdd(g, r, hn::Set(d, 0.6931471825f));
  g = hn::MulAdd(g, r, hn::Set(d, 1.0f));
  return hn::Mul(g, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
}

inline float exp2_negative(float x) { return hn::GetLane(exp2_negative(hn::Set(DF(), x))); }

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

/// Packs keys [first, first + count) of a [Sk, D] head transposed: one panel [D][panel], as multiply() wants its right
/// operand; missing keys are zero. `rows` receives the keys as they are, each `width` long.
inline void pack_transposed(const float* HWY_RESTRICT rows, std::int64_t width, std::int64_t count, std::int64_t depth,
                            float* HWY_RESTRICT to) {
  const std::int64_t panel = panel_width();
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t key = 0; key < count; ++key) to[k * panel + key] = rows[key * width + k];
    for (std::int64_t key = count; key < panel; ++key) to[k * panel + key] = 0;
  }
}

/// Fills `begin` and `end` (each [rows]) for query rows [row, row + rows) and keys [key, key + keys).
inline bool fill_row_ranges(const Problem& p, std::int64_t row, std::int64_t rows, std::int64_t key, std::int64_t keys,
                            std::int32_t* begin, std::int32_t* end) {
  bool masked = false;
  for (std::int64_t r = 0; r < rows; ++r) {
    const KeyRange seen = visible_keys(p, row + r);
    begin[r] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen.begin - key, 0, keys));
    end[r] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen.end - key, 0, keys));
    masked = masked || begin[r] != 0 || end[r] != keys;
  }
  return masked;
}

/// As fill_row_ranges, transposed: per key the query rows that see it.
inline void fill_column_ranges(const Problem& p, std::int64_t row, std::int64_t rows, std::int64_t key,
                               std::int64_t keys, std::int32_t* begin, std::int32_t* end) {
  for (std::int64_t c = 0; c < keys; ++c) {
    const KeyRange seen = visible_queries(p, key + c);
    begin[c] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen.begin - row, 0, rows));
    end[c] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen.end - row, 0, rows));
  }
}

/// The columns of a group of rows that products over groups may read: the union of its rows' ranges, widened to whole
/// groups of columns and to whole vectors.
inline KeyRange widened(RowRanges ranges, std::int64_t first, std::int64_t last) {
  const auto down = [](std::int64_t n, std::int64_t m) { return n / m * m; };
  const std::int64_t begin = ranges.begin[first];
  const std::int64_t end = ranges.end[last];
  if (begin >= end) return {0, 0};
  const std::int64_t up = down(end + kFlashGroup - 1, kFlashGroup);
  return {down(down(begin, kFlashGroup), lanes()), down(up + lanes() - 1, lanes())};
}

/// Brings logits beyond the range of fp32 back to its largest magnitude; NaN stays.
inline void saturate(float* row, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    if (row[i] > kLargest) row[i] = kLargest;
    if (row[i] < -kLargest) row[i] = -kLargest;
  }
}

/// Overwrites the part of [span.begin, span.end) that a row does not see.
inline void fill_unseen(float* row, KeyRange span, KeyRange seen, float value) {
  const std::int64_t begin = std::clamp(seen.begin, span.begin, span.end);
  const std::int64_t end = std::clamp(seen.end, begin, span.end);
  std::fill(row + span.begin, row + begin, value);
  std::fill(row + end, row + span.end, value);
}

}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
