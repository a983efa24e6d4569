// Softmax of one row, forward and backward, and its rounding to bf16, in vectors of whatever width the machine has.
#include "kernels/cpu/softmax.hpp"

#include "kernels/cpu/flash_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cpp"
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/flash_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnbench::kernels::HWY_NAMESPACE {
namespace {

using DU = hn::RebindToUnsigned<DF>;

/// Calls body(v) for whole vectors of a row and stores what it returns; the last, shorter one is filled up with
/// `filler` in a buffer of its own, since rows begin and end anywhere.
template <typename Body>
HWY_INLINE void update_row(float* row, std::int64_t count, float filler, const Body& body) {
  const DF d;
  std::int64_t j = 0;
  for (; j + lanes() <= count; j += lanes()) hn::StoreU(body(hn::LoadU(d, row + j)), d, row + j);
  if (j == count) return;
  HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(hn::Set(d, filler), d, rest);
  std::copy(row + j, row + count, rest);
  hn::Store(body(hn::Load(d, rest)), d, rest);
  std::copy(rest, rest + (count - j), row + j);
}

/// Comparisons, not Min and Max, which may lose a NaN.
HWY_INLINE VF saturated(VF value) {
  const VF largest = hn::Set(DF(), kLargest), smallest = hn::Set(DF(), -kLargest);
  const VF capped = hn::IfThenElse(hn::Gt(value, largest), largest, value);
  return hn::IfThenElse(hn::Lt(capped, smallest), smallest, capped);
}

}  // namespace

float softmax(float* row, std::int64_t count, float scale) {
  const DF d;
  const VF factor = hn::Set(d, scale);
  VF largest = hn::Set(d, -kLargest);
  // A NaN as filler is never above the largest.
  update_row(row, count, std::numeric_limits<float>::quiet_NaN(), [&](VF score) HWY_ATTR {
    const VF value = saturated(hn::Mul(score, factor));
    largest = hn::IfThenElse(hn::Gt(value, largest), value, largest);
    return value;
  });
  const float most = hn::GetLane(hn::MaxOfLanes(d, largest));
  const VF shift = hn::Set(d, most), log2e = hn::Set(d, kLog2E);
  VF sums = hn::Zero(d);
  update_row(row, count, -kInfinity, [&](VF score) HWY_ATTR {
    const VF weight = exp2_negative(hn::Mul(hn::Sub(score, shift), log2e));
    sums = hn::Add(sums, weight);
    return weight;
  });
  const float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  const VF inverse = hn::Set(d, 1.0f / sum);
  update_row(row, count, 0.0f, [&](VF weight) HWY_ATTR { return hn::Mul(weight, inverse); });
  return most + std::log(sum);
}

void softmax_backward(const float* p, float* dp, std::int64_t count, float scale) {
  const DF d;
  VF sums = hn::Zero(d);
  std::int64_t j = 0;
  for (; j + lanes() <= count; j += lanes()) sums = hn::MulAdd(hn::LoadU(d, p + j), hn::LoadU(d, dp + j), sums);
  float delta = hn::GetLane(hn::SumOfLanes(d, sums));
  const std::int64_t whole = j;
  for (; j < count; ++j) delta += p[j] * dp[j];
  const VF vdelta = hn::Set(d, delta), factor = hn::Set(d, scale);
  for (j = 0; j < whole; j += lanes()) {
    const VF ds = hn::Mul(hn::LoadU(d, p + j), hn::Sub(hn::LoadU(d, dp + j), vdelta));
    hn::StoreU(hn::Mul(ds, factor), d, dp + j);
  }
  for (; j < count; ++j) dp[j] = p[j] * (dp[j] - delta) * scale;
}

void narrow(const float* from, std::int64_t count, Bf16* to) {
  const DF d;
  const DU du;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<std::uint16_t, DF> du16;
  std::int64_t j = 0;
  for (; j + lanes() <= count; j += lanes()) {
    const VF value = hn::LoadU(d, from + j);
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
    const auto is_nan = hn::BitCast(du, hn::VecFromMask(d, hn::Ne(value, value)));
    const auto kept = hn::IfVecThenElse(is_nan, hn::Set(du, 0x7fc0u), rounded);
    hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, kept)), du16, reinterpret_cast<std::uint16_t*>(to) + j);
  }
  for (; j < count; ++j) to[j] = to_bf16(from[j]);
}

}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnbench::kernels {

HWY_EXPORT(softmax);
HWY_EXPORT(softmax_backward);
HWY_EXPORT(narrow);

float softmax_row(float* row, std::int64_t count, float scale) {
  return HWY_DYNAMIC_DISPATCH(softmax)(row, count, scale);
}

void softmax_backward_row(const float* p, float* dp, std::int64_t count, float scale) {
  HWY_DYNAMIC_DISPATCH(softmax_backward)(p, dp, count, scale);
}

void narrow_row(const float* from, std::int64_t count, Bf16* to) { HWY_DYNAMIC_DISPATCH(narrow)(from, count, to); }

}  // namespace attnbench::kernels
#endif
