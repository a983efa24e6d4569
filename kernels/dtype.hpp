// Element types of an attention problem, with exact conversions on the host.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace attnbench::kernels {

enum class Dtype : std::uint8_t { kFp32, kBf16, kFp16 };

constexpr std::size_t size_of(Dtype dtype) { return dtype == Dtype::kFp32 ? 4 : 2; }

constexpr std::string_view to_string(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return "fp32";
    case Dtype::kBf16:
      return "bf16";
    case Dtype::kFp16:
      return "fp16";
  }
  return "?";
}

/// Host storage of a bfloat16: the upper half of an IEEE single.
struct Bf16 {
  std::uint16_t bits = 0;
};

/// Host storage of an IEEE half.
struct Fp16 {
  std::uint16_t bits = 0;
};

inline float to_float(float value) { return value; }

inline float to_float(Bf16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

/// Exact: every half is a float. Subnormals are rebuilt by a float multiplication by 2^-14 * 2^-10.
inline float to_float(Fp16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Round to nearest even; NaN stays NaN (quiet).
inline Bf16 to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

/// Round to nearest even, overflow to infinity, gradual underflow; NaN stays NaN (quiet).
inline Fp16 to_fp16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // 65520 and up round to inf
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the half is subnormal: adding 0.5 puts the last kept bit at 2^-24, so the hardware rounds for us.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

/// Rounds a float to the element type T.
template <typename T>
T from_float(float value);
template <>
inline float from_float<float>(float value) {
  return value;
}
template <>
inline Bf16 from_float<Bf16>(float value) {
  return to_bf16(value);
}
template <>
inline Fp16 from_float<Fp16>(float value) {
  return to_fp16(value);
}

}  // namespace attnbench::kernels
