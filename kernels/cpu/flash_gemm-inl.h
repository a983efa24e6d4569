// Register-tiled matrix products of the flash kernel, written once for every instruction set (no include guard of the
// usual kind: Highway includes this file once per set).
#if defined(ATTNBENCH_FLASH_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTNBENCH_FLASH_GEMM_INL_H_
#undef ATTNBENCH_FLASH_GEMM_INL_H_
#else
#define ATTNBENCH_FLASH_GEMM_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hwy/highway.h"
#include "kernels/cpu/flash_plan.hpp"

HWY_BEFORE_NAMESPACE();
namespace attnbench::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

inline std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(DF())); }

// Accumulators + one row of B + a broadcast must fit the registers: 32 of them take 6 x 4 + 4 + 1, 16 take 6 x 2 + 2
// + 1.
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM
inline constexpr int kPanelVectors = 4;
#else
inline constexpr int kPanelVectors = 2;
#endif

inline std::int64_t panel_width() { return kPanelVectors * lanes(); }

// Rows of A per call; every value divides kFlashGroup.
template <int V>
inline constexpr int kMicroRows = kPanelVectors == 4 ? (V >= 3 ? 6 : 12) : (V == 2 ? 6 : 12);

/// A matrix of which the micro-kernel reads single elements: (row, k) at data[row * stride + k], or, transposed,
/// at data[k * stride + row].
template <bool kTransposed>
struct LeftMatrix {
  const float* data;
  std::ptrdiff_t stride;
};

template <bool kTransposed, int V, std::size_t... I>
HWY_INLINE void micro_step(std::index_sequence<I...>, VF* HWY_RESTRICT sum, const VF* HWY_RESTRICT right,
                           const float* HWY_RESTRICT left, std::ptrdiff_t stride) {
  constexpr std::ptrdiff_t kVectors = V;
  ((sum[I] = hn::MulAdd(hn::Set(DF(), left[static_cast<std::ptrdiff_t>(I) / kVectors * (kTransposed ? 1 : stride)]),
                        right[static_cast<std::ptrdiff_t>(I) % kVectors], sum[I])),
   ...);
}

template <int V, std::size_t... I>
HWY_INLINE void micro_store(std::index_sequence<I...>, const VF* HWY_RESTRICT sum, float* HWY_RESTRICT out,
                            std::ptrdiff_t stride, bool add) {
  const DF d;
  constexpr std::size_t kVectors = V;
  const auto at = [&](std::size_t i) HWY_ATTR {
    return out + static_cast<std::ptrdiff_t>(i / kVectors) * stride +
           static_cast<std::ptrdiff_t>((i % kVectors) * hn::Lanes(d));
  };
  if (add) {
    (hn::StoreU(hn::Add(hn::LoadU(d, at(I)), sum[I]), d, at(I)), ...);
  } else {
    (hn::StoreU(sum[I], d, at(I)), ...);
  }
}

template <std::size_t... I>
HWY_INLINE void load_row(std::index_sequence<I...>, const float* HWY_RESTRICT from, VF* HWY_RESTRICT to) {
  const DF d;
  ((to[I] = hn::LoadU(d, from + I * hn::Lanes(d))), ...);
}

// out[R, V vectors] = or += left[R, depth] * right[depth, V vectors]. Terms are added in order of k whatever R and V
// are, so an element of the product does not depend on where in a tile it lies.
template <int R, int V, bool kTransposed>
void micro(LeftMatrix<kTransposed> left, const float* HWY_RESTRICT right, std::int64_t depth, float* HWY_RESTRICT out,
           std::ptrdiff_t out_stride, bool add) {
  constexpr auto kAll = std::make_index_sequence<static_cast<std::size_t>(R) * V>();
  constexpr auto kRow = std::make_index_sequence<static_cast<std::size_t>(V)>();
  const std::ptrdiff_t right_stride = V * lanes();
  const std::ptrdiff_t left_step = kTransposed ? left.stride : 1;
  VF sum[static_cast<std::size_t>(R) * V];
  for (VF& s : sum) s = hn::Zero(DF());
  const float* HWY_RESTRICT a = left.data;
  for (std::int64_t k = 0; k < depth; ++k) {
    VF b[V];
    load_row(kRow, right, b);
    micro_step<kTransposed, V>(kAll, sum, b, a, left.stride);
    a += left_step;
    right += right_stride;
  }
  micro_store<V>(kAll, sum, out, out_stride, add);
}

template <bool kTransposed>
using Micro = void (*)(LeftMatrix<kTransposed>, const float* HWY_RESTRICT, std::int64_t, float* HWY_RESTRICT,
                       std::ptrdiff_t, bool);

// The micro-kernels of one panel width by number of rows; index 0 is unused.
template <int V, bool kTransposed, std::size_t... R>
constexpr std::array<Micro<kTransposed>, sizeof...(R) + 1> micro_table(std::index_sequence<R...>) {
  return {nullptr, &micro<static_cast<int>(R) + 1, V, kTransposed>...};
}

template <int V, bool kTransposed>
Micro<kTransposed> micro_for(std::int64_t rows) {
  static constexpr auto kTable =
      micro_table<V, kTransposed>(std::make_index_sequence<static_cast<std::size_t>(kMicroRows<V>)>());
  return kTable[static_cast<std::size_t>(rows)];
}

/// For each row of a product the half-open range of k (or of columns) that counts. Both ends never decrease with the
/// row. Null: everything counts.
struct RowRanges {
  const std::int32_t* begin = nullptr;
  const std::int32_t* end = nullptr;
};

/// out[rows, columns] = left[rows, depth] * right, where right is cut into panels [columns / panel][depth][panel] and
/// columns is a whole number of panels. Panels that no row of a group counts are not computed.
inline void multiply(LeftMatrix<false> left, std::int64_t rows, const float* right, std::int64_t depth,
                     std::int64_t columns, RowRanges ranges, float* out, std::int64_t out_stride) {
  constexpr std::int64_t kRows = kMicroRows<kPanelVectors>;
  const std::int64_t width = panel_width();
  for (std::int64_t column = 0; column < columns; column += width, right += depth * width) {
    for (std::int64_t row = 0; row < rows; row += kRows) {
      const std::int64_t count = HWY_MIN(kRows, rows - row);
      if (ranges.begin != nullptr && (ranges.end[row + count - 1] <= column || ranges.begin[row] >= column + width)) {
        continue;
      }
      const LeftMatrix<false> part{left.data + row * left.stride, left.stride};
      micro_for<kPanelVectors, false>(count)(part, right, depth, out + row * out_stride + column, out_stride, false);
    }
  }
}

template <int V, bool kTransposed>
void add_panel(LeftMatrix<kTransposed> left, std::int64_t rows, const float* right, std::int64_t depth,
               RowRanges ranges, bool exact, float* out, std::int64_t out_stride) {
  const std::int64_t step = exact ? 1 : kMicroRows<V>;
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = HWY_MIN(step, rows - row);
    const std::int64_t begin = ranges.begin != nullptr ? ranges.begin[row] : 0;
    const std::int64_t end = ranges.begin != nullptr ? ranges.end[row + count - 1] : depth;
    if (begin >= end) continue;
    const LeftMatrix<kTransposed> part{
        left.data + (kTransposed ? row + begin * left.stride : row * left.stride + begin), left.stride};
    micro_for<V, kTransposed>(count)(part, right + begin * V * lanes(), end - begin, out + row * out_stride, out_stride,
                                     true);
  }
}

/// out[rows, columns] += left[rows, depth] * right, where right is cut into panels [columns / panel][panel_rows][panel]
/// (the last one as wide as what remains, in whole vectors) and starts at its first row. Only k inside a row's range is
/// added, widened to the union over a group of rows; `exact` keeps to each row's own range, which is what keeps a NaN
/// of `right` away from rows that do not count it.
template <bool kTransposed>
void add_product(LeftMatrix<kTransposed> left, std::int64_t rows, const float* right, std::int64_t panel_rows,
                 std::int64_t first, std::int64_t depth, std::int64_t columns, RowRanges ranges, bool exact, float* out,
                 std::int64_t out_stride) {
  const std::int64_t width = panel_width();
  for (std::int64_t column = 0; column < columns; column += width) {
    const float* panel = right + column * panel_rows;
    const std::int64_t vectors = HWY_MIN(width, columns - column) / lanes();
    float* target = out + column;
    const float* from = panel + first * vectors * lanes();
    if (vectors == kPanelVectors) {
      add_panel<kPanelVectors, kTransposed>(left, rows, from, depth, ranges, exact, target, out_stride);
    } else if (vectors == 1) {
      add_panel<1, kTransposed>(left, rows, from, depth, ranges, exact, target, out_stride);
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM
    } else if (vectors == 2) {
      add_panel<2, kTransposed>(left, rows, from, depth, ranges, exact, target, out_stride);
    } else {
      add_panel<3, kTransposed>(left, rows, from, depth, ranges, exact, target, out_stride);
#endif
    }
  }
}

}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
