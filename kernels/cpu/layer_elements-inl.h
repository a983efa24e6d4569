// Element access and functions for layer_rows.cpp: plain loops over fp32 that compilers turn into vector code.
#if defined(ATTNBENCH_LAYER_ELEMENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTNBENCH_LAYER_ELEMENTS_INL_H
#undef ATTNBENCH_LAYER_ELEMENTS_INL_H
#else
#define ATTNBENCH_LAYER_ELEMENTS_INL_H
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace attnbench::kernels::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Rows are worked on in pieces of this many elements, which stay in the first cache as fp32.
constexpr std::int64_t kPiece = 1024;
using Piece = std::array<float, kPiece>;

// Sums run in this many lanes, whatever the width of a vector is: the order of additions is the same everywhere.
constexpr std::int64_t kLanes = 16;
struct Lanes {
  alignas(64) float lane[kLanes] = {};
  double total() const {
    double sum = 0;
    for (const float each : lane) sum += static_cast<double>(each);
    return sum;
  }
};

template <typename T>
void widen(const T* HWY_RESTRICT source, float* HWY_RESTRICT target, std::int64_t count) {
  std::int64_t i = 0;
  if constexpr (std::is_same_v<T, Fp16>) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> half;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; i + lanes <= count; i += lanes) {
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(source + i))), d, target + i);
    }
  }
  for (; i < count; ++i) target[i] = to_float(source[i]);
}

template <typename T>
void narrow(const float* HWY_RESTRICT source, T* HWY_RESTRICT target, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = from_float<T>(source[i]);
}

// Elements as fp32: where they are when they already are that, else widened into `piece`.
template <typename T>
const float* read(const T* source, std::int64_t count, Piece& piece) {
  if constexpr (std::is_same_v<T, float>) {
    return source;
  } else {
    widen(source, piece.data(), count);
    return piece.data();
  }
}

// Where to put fp32 results that `commit` then rounds to the target.
template <typename T>
float* results(T* target, Piece& piece) {
  if constexpr (std::is_same_v<T, float>) {
    return target;
  } else {
    return piece.data();
  }
}

template <typename T>
void commit(const Piece& piece, T* target, std::int64_t count) {
  if constexpr (!std::is_same_v<T, float>) narrow(piece.data(), target, count);
}

template <typename T>
void add_narrow(const float* source, const T* addend, T* target, std::int64_t count) {
  Piece piece;
  for (std::int64_t at = 0; at < count; at += kPiece) {
    const std::int64_t n = std::min(kPiece, count - at);
    widen(addend + at, piece.data(), n);
    for (std::int64_t i = 0; i < n; ++i) piece[static_cast<std::size_t>(i)] += source[at + i];
    narrow(piece.data(), target + at, n);
  }
}

inline void add_products(Lanes& sums, const float* a, const float* b, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sums.lane[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) sums.lane[0] += a[i] * b[i];
}

// e^x for x <= 0 within 2e-7 relative; 0 below -87.3 (the smallest normal float), NaN for NaN.
//
// x is n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 + 127 rounds x / ln 2 to n and leaves n + 127 in the low
// bits, where a shift makes them the exponent of 2^n. ln 2 is in two parts so that r keeps its digits; e^r is its
// Taylor sum to r^6 (the next term is below 1.3e-7).
inline float exp_negative(float x) {
  constexpr float kMagic = 12582912.0f + 127.0f;
  const float bounded = x < -87.3f ? -87.3f : x;
  const float shifted = bounded * 1.44269504f + kMagic;
  const float n = shifted - kMagic;
  const float r = (bounded - n * 0.693145752f) - n * 1.42860677e-6f;
  float sum = 1.0f / 720.0f;
  sum = sum * r + 1.0f / 120.0f;
  sum = sum * r + 1.0f / 24.0f;
  sum = sum * r + 1.0f / 6.0f;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const float power = std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);
  return x < -87.3f ? 0.0f : sum * power;
}

inline float sigmoid(float x) {
  const float small = exp_negative(x < 0.0f ? x : -x);
  const float inverse = 1.0f / (1.0f + small);
  return x < 0.0f ? small * inverse : inverse;
}

// Cosine and sine of `angle` within 1e-9 (before rounding to fp32), for 0 <= angle < 2^20.
//
// angle is q pi / 2 + r with |r| <= pi / 4; adding 1.5 * 2^52 rounds 2 angle / pi to q and leaves it in the low bits.
// pi / 2 is in two parts, the first of 33 bits so that q times it is exact. The Taylor sums end below 1e-10.
inline void cos_sin(double angle, float& cosine, float& sine) {
  constexpr double kMagic = 6755399441055744.0;
  const double shifted = angle * 0.63661977236758134 + kMagic;
  const double q = shifted - kMagic;
  const double r = (angle - q * 1.57079632673412561417) - q * 6.07710050650619224932e-11;
  const double s = r * r;
  const double sum_sin =
      r * (1.0 + s * (-1.0 / 6 + s * (1.0 / 120 + s * (-1.0 / 5040 + s * (1.0 / 362880 - s * (1.0 / 39916800))))));
  const double sum_cos =
      1.0 + s * (-0.5 + s * (1.0 / 24 + s * (-1.0 / 720 + s * (1.0 / 40320 - s * (1.0 / 3628800 - s / 479001600)))));
  const std::uint64_t quadrant = std::bit_cast<std::uint64_t>(shifted);
  const bool odd = (quadrant & 1) != 0;
  const double c = odd ? sum_sin : sum_cos;
  const double n = odd ? sum_cos : sum_sin;
  cosine = static_cast<float>(((quadrant + 1) & 2) != 0 ? -c : c);
  sine = static_cast<float>((quadrant & 2) != 0 ? -n : n);
}

}  // namespace
}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
