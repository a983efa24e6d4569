// Vector exponential and the constants of the flash kernel's softmax, written once for every instruction set.
#if defined(ATTNBENCH_FLASH_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTNBENCH_FLASH_EXP_INL_H_
#undef ATTNBENCH_FLASH_EXP_INL_H_
#else
#define ATTNBENCH_FLASH_EXP_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/flash_gemm-inl.h"

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
#if HWY_TARGET == HWY_SCALAR
  x = hn::IfThenElse(hn::Lt(x, hn::Set(d, -127.0f)), hn::Set(d, -127.0f), x);  // here Max drops a NaN
#else
  x = hn::Max(hn::Set(d, -127.0f), x);
#endif
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

}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
