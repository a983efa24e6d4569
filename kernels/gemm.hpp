// The contract of matrix products outside attention: what the layers of a model call. One library per backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "bench/base/error.hpp"
#include "kernels/dtype.hpp"
#include "kernels/kernel.hpp"

namespace attnbench::kernels {

/// A matrix in memory: element (r, c) is at r * row + c * column, in elements; one of the two strides is 1.
struct GemmMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row = 0;
  std::int64_t column = 1;
  Dtype dtype = Dtype::kFp32;

  bool operator==(const GemmMatrix&) const = default;
};

/// A dense row-major matrix, or a part of a wider one (`stride` elements from row to row).
inline GemmMatrix row_major(std::int64_t rows, std::int64_t columns, std::int64_t stride, Dtype dtype) {
  return {rows, columns, stride, 1, dtype};
}

/// The same memory read the other way.
inline GemmMatrix transpose(const GemmMatrix& m) { return {m.columns, m.rows, m.column, m.row, m.dtype}; }

/// c = a b, sums in fp32, rounded once on the way out.
///
/// Shapes  a [m, k]   b [k, n]   c [m, n], rows of c contiguous
/// Needs   a and b of one dtype; c of the same or fp32
struct GemmSpec {
  GemmMatrix a, b, c;

  bool operator==(const GemmSpec&) const = default;
};

/// A product bound to its shapes, device and workspace, so that a run allocates nothing.
class PreparedGemm {
 public:
  virtual ~PreparedGemm() = default;
  /// c = a b, or c = a b + addend when `addend` is not null. `addend` has c's layout and may be c itself.
  virtual base::Result<void> run(const void* a, const void* b, const void* addend, void* c) = 0;
};

/// The products of one backend. Errors of both: kAbsent where the library is not here, kUnsupported for a product that
/// it declines.
struct GemmLibrary {
  std::string_view name;
  /// Bytes that every run uses as scratch; contents undefined before and after, so that products may share it.
  base::Result<std::size_t> (*workspace_bytes)(const GemmSpec& spec, Device& device) = nullptr;
  base::Result<std::unique_ptr<PreparedGemm>> (*prepare)(const GemmSpec& spec, void* workspace,
                                                         Device& device) = nullptr;
};

}  // namespace attnbench::kernels
