// Matrix products of a tuned library, bound before the clock runs; says nothing of which library.
//
// The library lives in a module of its own, opened on first use: linked, it costs every start of the program 5 ms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "kernels/device/device.hpp"
#include "kernels/dtype.hpp"

namespace attnbench::kernels {

/// A matrix in memory as an operand: element (r, c) is at r * row + c * column. No extent may be 0.
struct MatrixShape {
  std::int64_t rows, columns, row, column;
  Dtype dtype = Dtype::kFp32;
};

inline MatrixShape plain(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return {rows, columns, stride, 1};
}
inline MatrixShape transposed(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return {rows, columns, 1, stride};
}

/// Shapes of c = a b. Sums are fp32 whatever the dtypes are.
struct ProductShapes {
  MatrixShape a, b, c;
};

/// One product of fixed shapes, bound for a number of threads; made by the module.
class LibraryProduct {
 public:
  virtual ~LibraryProduct() = default;
  /// Scratch that each thread hands in, aligned to 64 bytes; contents undefined before and after.
  virtual std::size_t scratch_bytes() const = 0;
  /// False: the library reported an error. `thread` is the pool's number of the calling thread.
  virtual bool run(const void* a, const void* b, void* c, int thread, void* scratch) = 0;
};

/// What libattnbench_onednn.so exports as kProductModuleSymbol.
struct ProductModule {
  const char* build_id = nullptr;
  std::string version;
  /// Errors  kUnsupported: the library has no such product on this machine, or nothing but a slow reference for these
  /// dtypes; kFailed: it reported something else
  base::Result<std::unique_ptr<LibraryProduct>> (*make)(const ProductShapes& shapes, bool accumulate,
                                                        int threads) = nullptr;
};
using ProductModuleFunction = const ProductModule* (*)();
inline constexpr const char* kProductModuleFile = "libattnbench_onednn.so";
inline constexpr const char* kProductModuleSymbol = "attnbench_product_module";

/// Error kAbsent: the module is not where the program looks, or belongs to another build.
base::Result<const ProductModule*> product_module();

/// c = a b, or c += a b, the same for every block of rows of c; the last block may be shorter. Each thread of the pool
/// runs products of its own: one product never uses more than the thread that calls it.
class BlockedProduct {
 public:
  using MakeProduct = std::function<base::Result<std::unique_ptr<LibraryProduct>>(std::int64_t rows)>;

  /// `shapes` gives the shapes for a number of rows; `device` the threads, and the memory that the library works in.
  /// Errors  kAbsent: no library; those of ProductModule::make and of Device::allocate
  static base::Result<BlockedProduct> make(std::int64_t rows, std::int64_t block, bool accumulate, Device& device,
                                           const std::function<ProductShapes(std::int64_t rows)>& shapes);
  /// Of products from anywhere. Errors  those of `product` and of Device::allocate
  static base::Result<BlockedProduct> make(std::int64_t rows, std::int64_t block, Device& device,
                                           const MakeProduct& product);

  /// False: the library reported an error. `thread` is the pool's number of the calling thread.
  bool run(std::int64_t rows, const void* a, const void* b, float* c, int thread);

 private:
  std::int64_t block_ = 1;
  std::vector<std::unique_ptr<LibraryProduct>> products_;  // whole blocks, then the last one where it is shorter
  std::size_t scratch_bytes_ = 0;                          // of a thread
  Buffer scratch_;                                         // of all threads
};

/// The element type that the products of a problem read: bf16 for a bf16 problem when `bind`, which makes them all,
/// gets them so; fp32 when the library declines that (kUnsupported), and for any other problem. Leaves what the last
/// call of `bind` made; any other error is the caller's.
base::Result<Dtype> bind_products(Dtype problem, const std::function<base::Result<void>(Dtype input)>& bind);

}  // namespace attnbench::kernels
