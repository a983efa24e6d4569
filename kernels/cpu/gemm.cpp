// Matrix products of gemm.hpp on the processor: blocks of c shared out among the threads, each a product of oneDNN.
#include "kernels/gemm.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/cpu/blas_product.hpp"
#include "kernels/cpu/layer_rows.hpp"
#include "kernels/cpu/rows.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

/// c is cut into blocks so that there is work for several threads; the cut depends on the shape alone, and so do the
/// bits of the result.
struct Grid {
  std::int64_t rows, columns;  // of a block
  std::int64_t down, across;   // blocks

  std::int64_t blocks() const { return down * across; }
};

Grid grid_of(const GemmSpec& spec) {
  constexpr std::int64_t kBlocks = 4;      // levels out two threads; every further block reads an operand again
  constexpr double kLeastFlop = 6e6;       // about 0.1 ms of one core: what is below is not worth cutting
  constexpr std::int64_t kLeastSide = 64;  // whole register tiles
  const std::int64_t m = spec.c.rows, n = spec.c.columns, k = spec.a.columns;
  const auto divide_up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  Grid grid{std::min<std::int64_t>(m, 512), std::min<std::int64_t>(n, 1024), 1, 1};
  for (;;) {
    grid.down = divide_up(m, grid.rows);
    grid.across = divide_up(n, grid.columns);
    const double flop =
        2.0 * static_cast<double>(grid.rows) * static_cast<double>(grid.columns) * static_cast<double>(k);
    std::int64_t& longer = grid.rows >= grid.columns ? grid.rows : grid.columns;
    if (grid.blocks() >= kBlocks || flop < 2 * kLeastFlop || longer < 2 * kLeastSide) return grid;
    longer = divide_up(longer, 2 * 16) * 16;
  }
}

MatrixShape part(const GemmMatrix& m, std::int64_t rows, std::int64_t columns) {
  return {rows, columns, m.row, m.column, m.dtype};
}

const void* at(const void* base, const GemmMatrix& m, std::int64_t row, std::int64_t column) {
  return static_cast<const std::byte*>(base) + (row * m.row + column * m.column) * static_cast<int>(size_of(m.dtype));
}
void* at(void* base, const GemmMatrix& m, std::int64_t row, std::int64_t column) {
  return static_cast<std::byte*>(base) + (row * m.row + column * m.column) * static_cast<int>(size_of(m.dtype));
}

/// The same matrix as dense fp32, contiguous along the direction in which it was.
GemmMatrix widened(const GemmMatrix& m) {
  return m.column == 1 ? row_major(m.rows, m.columns, m.columns, Dtype::kFp32)
                       : GemmMatrix{m.rows, m.columns, 1, m.rows, Dtype::kFp32};
}

class CpuGemm : public PreparedGemm {
 public:
  CpuGemm(const GemmSpec& spec, CpuDevice& device) : spec_(spec), inner_(spec), grid_(grid_of(spec)), device_(device) {}

  /// Makes the products: of the operands as they are, else of fp32 copies.
  Result<void> bind() {
    auto ok = make_products();
    if (!ok && ok.error().kind != ErrorKind::kAbsent && spec_.a.dtype != Dtype::kFp32) {
      inner_ = {widened(spec_.a), widened(spec_.b), spec_.c.dtype == Dtype::kFp32 ? spec_.c : widened(spec_.c)};
      ok = make_products();
    }
    return ok;
  }

  /// Lays out the workspace; with a null base it only adds up.
  std::size_t place(void* workspace) {
    Carver carver(workspace);
    const auto copy = [&](const GemmMatrix& outer, const GemmMatrix& inner) {
      return outer.dtype == inner.dtype ? nullptr : carver.take<float>(inner.rows * inner.columns);
    };
    a_copy_ = copy(spec_.a, inner_.a);
    b_copy_ = copy(spec_.b, inner_.b);
    c_copy_ = copy(spec_.c, inner_.c);
    std::size_t largest = 0;
    for (const auto& product : products_) {
      if (product) largest = std::max(largest, product->scratch_bytes());
    }
    scratch_bytes_ = (largest + 63) / 64 * 64;
    scratch_ = carver.take<std::byte>(static_cast<std::int64_t>(scratch_bytes_) * device_.threads());
    return carver.bytes();
  }

  Result<void> run(const void* a, const void* b, const void* addend, void* c) override {
    failed_.store(false, std::memory_order_relaxed);
    const void* const left = a_copy_ == nullptr ? a : widen(spec_.a, a, a_copy_);
    const void* const right = b_copy_ == nullptr ? b : widen(spec_.b, b, b_copy_);
    const auto body = [&](std::int64_t item, int thread) { block(item, thread, left, right, addend, c); };
    device_.pool().parallel_for(grid_.blocks(), body);
    if (failed_.load()) return fail(ErrorKind::kFailed, "oneDNN reported an error while running a matrix product");
    return {};
  }

 private:
  /// Index of the product for a block: bit 0 for a shorter last row of blocks, bit 1 for a narrower last column, bit 2
  /// for one that adds.
  std::size_t kind_of(std::int64_t rows, std::int64_t columns, bool add) const {
    return (rows == grid_.rows ? 0u : 1u) + (columns == grid_.columns ? 0u : 2u) + (add ? 4u : 0u);
  }

  Result<void> make_products() {
    const auto module = product_module();
    if (!module) return tl::unexpected(module.error());
    products_.clear();
    products_.resize(8);
    const std::int64_t m = spec_.c.rows, n = spec_.c.columns, k = spec_.a.columns;
    for (const std::int64_t rows : {grid_.rows, m - (grid_.down - 1) * grid_.rows}) {
      for (const std::int64_t columns : {grid_.columns, n - (grid_.across - 1) * grid_.columns}) {
        for (const bool add : {false, true}) {
          auto& product = products_[kind_of(rows, columns, add)];
          if (product) continue;
          const ProductShapes shapes{part(inner_.a, rows, k), part(inner_.b, k, columns),
                                     part(inner_.c, rows, columns)};
          auto made = (*module)->make(shapes, add, device_.threads());
          if (!made) return tl::unexpected(made.error());
          product = std::move(*made);
        }
      }
    }
    return {};
  }

  /// Copies a 16-bit operand into dense fp32, line by line along its contiguous direction.
  const void* widen(const GemmMatrix& m, const void* source, float* target) {
    const bool along_rows = m.column == 1;
    const std::int64_t lines = along_rows ? m.rows : m.columns;
    const std::int64_t length = along_rows ? m.columns : m.rows;
    const std::int64_t stride = along_rows ? m.row : m.column;
    const auto loop = layer_rows(m.dtype).widen;
    const std::int64_t some = std::max<std::int64_t>(1, 32 * 1024 / length);
    const auto body = [&](std::int64_t item, int) {
      for (std::int64_t line = item * some; line < std::min(lines, (item + 1) * some); ++line) {
        loop(static_cast<const std::byte*>(source) + line * stride * static_cast<int>(size_of(m.dtype)),
             target + line * length, length);
      }
    };
    device_.pool().parallel_for((lines + some - 1) / some, body);
    return target;
  }

  void block(std::int64_t item, int thread, const void* a, const void* b, const void* addend, void* c) {
    const std::int64_t row = item / grid_.across * grid_.rows, column = item % grid_.across * grid_.columns;
    const std::int64_t rows = std::min(grid_.rows, spec_.c.rows - row);
    const std::int64_t columns = std::min(grid_.columns, spec_.c.columns - column);
    const bool direct = c_copy_ == nullptr;
    const bool add = addend != nullptr && direct;
    if (add && addend != c) {
      const auto bytes = static_cast<std::size_t>(columns) * size_of(spec_.c.dtype);
      for (std::int64_t r = row; r < row + rows; ++r) {
        std::copy_n(static_cast<const std::byte*>(at(addend, spec_.c, r, column)), bytes,
                    static_cast<std::byte*>(at(c, spec_.c, r, column)));
      }
    }
    void* const target = at(direct ? c : c_copy_, inner_.c, row, column);
    void* const scratch = scratch_ + static_cast<std::size_t>(thread) * scratch_bytes_;
    auto& product = *products_[kind_of(rows, columns, add)];
    if (!product.run(at(a, inner_.a, row, 0), at(b, inner_.b, 0, column), target, thread, scratch)) {
      failed_.store(true, std::memory_order_relaxed);
      return;
    }
    if (direct) return;
    const LayerRows& loops = layer_rows(spec_.c.dtype);
    for (std::int64_t r = row; r < row + rows; ++r) {
      const float* const line = static_cast<const float*>(at(static_cast<const void*>(c_copy_), inner_.c, r, column));
      if (addend != nullptr) {
        loops.add_narrow(line, at(addend, spec_.c, r, column), at(c, spec_.c, r, column), columns);
      } else {
        loops.narrow(line, at(c, spec_.c, r, column), columns);
      }
    }
  }

  GemmSpec spec_;
  GemmSpec inner_;  // what the products work on
  Grid grid_;
  CpuDevice& device_;
  std::vector<std::unique_ptr<LibraryProduct>> products_;
  float *a_copy_ = nullptr, *b_copy_ = nullptr, *c_copy_ = nullptr;
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  std::atomic<bool> failed_{false};
};

Result<std::unique_ptr<CpuGemm>> make_gemm(const GemmSpec& spec, Device& device) {
  const bool shapes_fit = spec.a.rows == spec.c.rows && spec.b.columns == spec.c.columns &&
                          spec.a.columns == spec.b.rows && spec.c.rows > 0 && spec.c.columns > 0 && spec.a.columns > 0;
  if (!shapes_fit || spec.a.dtype != spec.b.dtype || spec.c.column != 1 ||
      (spec.c.dtype != spec.a.dtype && spec.c.dtype != Dtype::kFp32)) {
    return fail(ErrorKind::kUnsupported, "a matrix product whose shapes or dtypes do not fit together");
  }
  auto gemm = std::make_unique<CpuGemm>(spec, static_cast<CpuDevice&>(device));
  if (auto ok = gemm->bind(); !ok) return tl::unexpected(ok.error());
  return gemm;
}

Result<std::size_t> workspace_bytes(const GemmSpec& spec, Device& device) {
  auto gemm = make_gemm(spec, device);
  if (!gemm) return tl::unexpected(gemm.error());
  return (*gemm)->place(nullptr);
}

Result<std::unique_ptr<PreparedGemm>> prepare_gemm(const GemmSpec& spec, void* workspace, Device& device) {
  auto gemm = make_gemm(spec, device);
  if (!gemm) return tl::unexpected(gemm.error());
  (*gemm)->place(workspace);
  return std::unique_ptr<PreparedGemm>(std::move(*gemm));
}

}  // namespace

/// Products of oneDNN, one thread each. 16-bit operands go to it as they are where it has vector code for them, else
/// through fp32 copies in the workspace.
const GemmLibrary& cpu_gemm() {
  static const GemmLibrary library{"onednn", &workspace_bytes, &prepare_gemm};
  return library;
}

}  // namespace attnbench::kernels
