// Products of every layout and dtype against double precision, on shapes of one block and of many.
#include "kernels/gemm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "bench/base/rng.hpp"
#include "kernels/catalog.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::kernels {
namespace {

struct Matrix {
  GemmMatrix shape;
  std::vector<float> values;         // what the elements are, row-major
  std::vector<unsigned char> bytes;  // as they lie in memory; gaps between rows hold 0x55

  float& at(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * shape.columns + column)];
  }
  unsigned char* place(std::int64_t row, std::int64_t column) {
    return bytes.data() + static_cast<std::size_t>(row * shape.row + column * shape.column) * size_of(shape.dtype);
  }
};

float read(const unsigned char* place, Dtype dtype) {
  if (dtype == Dtype::kBf16) return to_float(*reinterpret_cast<const Bf16*>(place));
  if (dtype == Dtype::kFp16) return to_float(*reinterpret_cast<const Fp16*>(place));
  return *reinterpret_cast<const float*>(place);
}

void write(unsigned char* place, Dtype dtype, float value) {
  if (dtype == Dtype::kBf16) {
    *reinterpret_cast<Bf16*>(place) = to_bf16(value);
  } else if (dtype == Dtype::kFp16) {
    *reinterpret_cast<Fp16*>(place) = to_fp16(value);
  } else {
    *reinterpret_cast<float*>(place) = value;
  }
}

/// Random values that the dtype holds; `gap` elements between lines.
Matrix draw(std::int64_t rows, std::int64_t columns, bool flipped, std::int64_t gap, Dtype dtype,
            std::uint64_t stream) {
  Matrix m;
  m.shape =
      flipped ? transpose(row_major(columns, rows, rows + gap, dtype)) : row_major(rows, columns, columns + gap, dtype);
  m.values.resize(static_cast<std::size_t>(rows * columns));
  const std::int64_t span = flipped ? columns * m.shape.column : rows * m.shape.row;
  m.bytes.assign(static_cast<std::size_t>(span) * size_of(dtype), 0x55);
  const base::Rng rng(3, stream);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      write(m.place(r, c), dtype, rng.normal(static_cast<std::uint64_t>(r * columns + c)));
      m.at(r, c) = read(m.place(r, c), dtype);
    }
  }
  return m;
}

struct GemmCase {
  std::int64_t m, n, k;
  bool flip_a, flip_b;
  Dtype in, out;
};

class Gemm : public ::testing::TestWithParam<GemmCase> {};

/// The bytes of c after runs with no addend, with c itself and with another matrix. On one thread each is compared with
/// double precision.
void check(const GemmCase& p, int threads, std::vector<unsigned char>& bits) {
  CpuDevice device(threads);
  const GemmLibrary& library = *cpu_backend().gemm;
  Matrix a = draw(p.m, p.k, p.flip_a, 3, p.in, 1), b = draw(p.k, p.n, p.flip_b, 0, p.in, 2);
  const Matrix start = draw(p.m, p.n, false, 5, p.out, 3);
  Matrix other = draw(p.m, p.n, false, 5, p.out, 4);
  const GemmSpec spec{a.shape, b.shape, start.shape};
  const auto bytes = library.workspace_bytes(spec, device);
  ASSERT_TRUE(bytes) << bytes.error().message;
  auto workspace = device.allocate(*bytes + 64);
  auto* const base = static_cast<unsigned char*>(workspace->data());
  std::fill(base, base + *bytes + 64, static_cast<unsigned char>(0xff));
  auto gemm = library.prepare(spec, base, device);
  ASSERT_TRUE(gemm) << gemm.error().message;
  const double unit = p.out == Dtype::kFp32 ? 3e-7 : p.out == Dtype::kBf16 ? 0x1p-8 : 0x1p-11;
  for (int mode = 0; mode < 3; ++mode) {
    Matrix c = start;
    const void* const addends[] = {nullptr, c.bytes.data(), other.bytes.data()};
    const auto ok = (*gemm)->run(a.bytes.data(), b.bytes.data(), addends[mode], c.bytes.data());
    ASSERT_TRUE(ok) << ok.error().message;
    bits.insert(bits.end(), c.bytes.begin(), c.bytes.end());
    if (threads > 1) continue;
    Matrix before = mode == 1 ? start : other, untouched = start;
    for (std::int64_t row = 0; row < p.m; ++row) {
      for (std::int64_t column = 0; column < p.n; ++column) {
        double sum = mode == 0 ? 0.0 : double{before.at(row, column)}, magnitude = std::abs(sum);
        for (std::int64_t i = 0; i < p.k; ++i) {
          const double term = double{a.at(row, i)} * double{b.at(i, column)};
          sum += term;
          magnitude += std::abs(term);
        }
        const double error = std::abs(double{read(c.place(row, column), p.out)} - sum);
        ASSERT_LE(error, unit * std::abs(sum) + 3e-7 * magnitude) << row << ", " << column << ", mode " << mode;
      }
      for (std::int64_t gap = p.n; gap < c.shape.row; ++gap) {
        if (row + 1 < p.m) {
          ASSERT_EQ(std::memcmp(c.place(row, gap), untouched.place(row, gap), size_of(p.out)), 0) << "gap";
        }
      }
    }
  }
  for (std::size_t i = *bytes; i < *bytes + 64; ++i) ASSERT_EQ(base[i], 0xff) << "the workspace is larger than it said";
}

TEST_P(Gemm, IsTheSumOfProductsRoundedOnceWithTheSameBitsOnAnyNumberOfThreads) {
  std::vector<unsigned char> one, three;
  check(GetParam(), 1, one);
  check(GetParam(), 3, three);
  EXPECT_EQ(one, three);
}

std::vector<GemmCase> cases() {
  std::vector<GemmCase> all;
  const std::int64_t shapes[][3] = {{1, 1, 1},      {5, 3, 7},      {64, 48, 33},
                                    {130, 200, 70}, {600, 20, 300}, {17, 1100, 260}};
  for (const auto& [m, n, k] : shapes) {
    for (const bool flip_a : {false, true}) {
      for (const bool flip_b : {false, true}) {
        all.push_back({m, n, k, flip_a, flip_b, Dtype::kFp32, Dtype::kFp32});
        for (const Dtype in : {Dtype::kBf16, Dtype::kFp16}) {
          all.push_back({m, n, k, flip_a, flip_b, in, in});
          all.push_back({m, n, k, flip_a, flip_b, in, Dtype::kFp32});
        }
      }
    }
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<GemmCase>& info) {
  const GemmCase& p = info.param;
  return std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k) + (p.flip_a ? "_t" : "_n") +
         (p.flip_b ? "t_" : "n_") + std::string(to_string(p.in)) + "_" + std::string(to_string(p.out));
}

INSTANTIATE_TEST_SUITE_P(Products, Gemm, ::testing::ValuesIn(cases()), name_of);

TEST(GemmLibrary, RefusesShapesThatDoNotFit) {
  CpuDevice device(1);
  const GemmMatrix a = row_major(4, 3, 3, Dtype::kFp32), b = row_major(2, 5, 5, Dtype::kFp32);
  const auto refused = cpu_backend().gemm->workspace_bytes({a, b, row_major(4, 5, 5, Dtype::kFp32)}, device);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, base::ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace attnbench::kernels
