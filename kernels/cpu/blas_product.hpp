// Matrix products of a tuned library, bound before the clock runs; says nothing of which library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bench/base/error.hpp"

namespace attnbench::kernels {

/// A dense fp32 matrix in memory as an operand: element (r, c) is at r * row + c * column. No extent may be 0.
struct MatrixShape {
  std::int64_t rows, columns, row, column;
};

inline MatrixShape plain(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return {rows, columns, stride, 1};
}
inline MatrixShape transposed(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return {rows, columns, 1, stride};
}

/// Shapes of c = a b.
struct ProductShapes {
  MatrixShape a, b, c;
};

/// c = a b, or c += a b, the same for every block of rows of c; the last block may be shorter. Each thread of the pool
/// runs products of its own: one product never uses more than the thread that calls it.
class BlockedProduct {
 public:
  BlockedProduct();
  BlockedProduct(BlockedProduct&&) noexcept;
  BlockedProduct& operator=(BlockedProduct&&) noexcept;
  ~BlockedProduct();

  /// `shapes` gives the shapes for a number of rows. Error kFailed: the library declines.
  static base::Result<BlockedProduct> make(std::int64_t rows, std::int64_t block, bool accumulate, int threads,
                                           const std::function<ProductShapes(std::int64_t rows)>& shapes);

  /// False: the library reported an error. `thread` is the pool's number of the calling thread.
  bool run(std::int64_t rows, const float* a, const float* b, float* c, int thread);

 private:
  class Product;
  std::int64_t block_ = 1;
  std::vector<std::unique_ptr<Product>> products_;  // whole blocks, then the last one where it is shorter
};

}  // namespace attnbench::kernels
