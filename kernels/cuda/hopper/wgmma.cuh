// Warpgroup matrix products, m64 nN k16, 16-bit inputs, fp32 accumulators, for the widths that attention uses.
//
// Accumulator fragment of lane l of warp w (of four): d[4 j + 0, 1] are columns 8 j + 2 (l % 4) + {0, 1} of row
// 16 w + l / 4; d[4 j + 2, 3] the same columns, eight rows below. Two neighbouring 8-column groups are, once packed to
// 16 bits, exactly the A fragment of the next product over 16 of its k values: that is why P never leaves registers.
// Source: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include <cstdint>

#include "kernels/cuda/hopper/ptx.cuh"

namespace attnbench::kernels::hopper {

// A shared-memory operand comes as two halves, since operands of one product share the upper one, and that is a
// constant. Put together before the instruction they cost the forward at head_dim 256 some 60 instructions a kernel.
//
// K-major (rows of up to 64 elements): leading unused; 16 k values further = + 32 bytes.
// MN-major (transposed): leading = bytes to the next chunk of columns; 16 k values further = + 16 rows.

/// Upper half of an operand whose rows are 32, 64 or 128 bytes wide and swizzled to that width: stride of 8 rows,
/// swizzle.
template <int kRowBytes>
constexpr std::uint32_t operand_high() {
  static_assert(kRowBytes == 32 || kRowBytes == 64 || kRowBytes == 128, "swizzles that wgmma knows");
  constexpr std::uint32_t kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
  return (8 * kRowBytes >> 4) | (kSwizzle << 30);
}

/// Lower half: address and leading stride. The operand `bytes` further on is the one with bytes / 16 added to it.
__device__ inline std::uint32_t operand_low(std::uint32_t address, int leading_bytes = 16) {
  return (address & 0x3ffff) >> 4 | static_cast<std::uint32_t>(leading_bytes >> 4) << 16;
}

/// Orders register writes before the products that read them; also needed before the first use of accumulators.
__device__ inline void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most kPending committed groups are in flight.
template <int kPending>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define ATTNBENCH_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ATTNBENCH_R1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define ATTNBENCH_R2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define ATTNBENCH_R3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define ATTNBENCH_R4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define ATTNBENCH_R5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define ATTNBENCH_R6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define ATTNBENCH_R7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define ATTNBENCH_R8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define ATTNBENCH_R9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define ATTNBENCH_R10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define ATTNBENCH_R11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define ATTNBENCH_R12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define ATTNBENCH_R13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define ATTNBENCH_R14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define ATTNBENCH_R15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define ATTNBENCH_D8(i)                                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
// Each width is the one before it and some more.
#define ATTNBENCH_LIST_16 ATTNBENCH_R0
#define ATTNBENCH_OUT_16 ATTNBENCH_D8(0)
#define ATTNBENCH_LIST_32 ATTNBENCH_LIST_16 ", " ATTNBENCH_R1
#define ATTNBENCH_OUT_32 ATTNBENCH_OUT_16, ATTNBENCH_D8(8)
#define ATTNBENCH_LIST_64 ATTNBENCH_LIST_32 ", " ATTNBENCH_R2 ", " ATTNBENCH_R3
#define ATTNBENCH_OUT_64 ATTNBENCH_OUT_32, ATTNBENCH_D8(16), ATTNBENCH_D8(24)
#define ATTNBENCH_LIST_80 ATTNBENCH_LIST_64 ", " ATTNBENCH_R4
#define ATTNBENCH_OUT_80 ATTNBENCH_OUT_64, ATTNBENCH_D8(32)
#define ATTNBENCH_LIST_96 ATTNBENCH_LIST_80 ", " ATTNBENCH_R5
#define ATTNBENCH_OUT_96 ATTNBENCH_OUT_80, ATTNBENCH_D8(40)
#define ATTNBENCH_LIST_128 ATTNBENCH_LIST_96 ", " ATTNBENCH_R6 ", " ATTNBENCH_R7
#define ATTNBENCH_OUT_128 ATTNBENCH_OUT_96, ATTNBENCH_D8(48), ATTNBENCH_D8(56)
#define ATTNBENCH_LIST_192 ATTNBENCH_LIST_128 ", " ATTNBENCH_R8 ", " ATTNBENCH_R9 ", " ATTNBENCH_R10 ", " ATTNBENCH_R11
#define ATTNBENCH_OUT_192 ATTNBENCH_OUT_128, ATTNBENCH_D8(64), ATTNBENCH_D8(72), ATTNBENCH_D8(80), ATTNBENCH_D8(88)
#define ATTNBENCH_LIST_256 \
  ATTNBENCH_LIST_192 ", " ATTNBENCH_R12 ", " ATTNBENCH_R13 ", " ATTNBENCH_R14 ", " ATTNBENCH_R15
#define ATTNBENCH_OUT_256 ATTNBENCH_OUT_192, ATTNBENCH_D8(96), ATTNBENCH_D8(104), ATTNBENCH_D8(112), ATTNBENCH_D8(120)

/// d (+)= a b over 16 values of k, m64 nN: ss with a [64, 16] and b [N, 16] K-major in shared memory (q k^T), rs with a
/// in registers and b [16, N] transposed in shared memory (p v). `accumulate` 0 overwrites d. Operands in shared memory
/// are lower halves of a common upper one, `high`.
template <int N, typename T>
struct Product;

#define ATTNBENCH_PRODUCT(N, I0, I1, I2, I3, I4, I5, I6, T, type)                                                     \
  template <>                                                                                                         \
  struct Product<N, T> {                                                                                              \
    static __device__ void ss(float (&d)[N / 2], std::uint32_t a, std::uint32_t b, std::uint32_t high,                \
                              int accumulate) {                                                                       \
      asm volatile("{\n.reg .pred p;\n.reg .b64 x, y;\nmov.b64 x, {%" #I0 ", %" #I3 "};\nmov.b64 y, {%" #I1 ", %" #I3 \
                   "};\nsetp.ne.b32 p, %" #I2                                                                         \
                   ", 0;\n"                                                                                           \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" ATTNBENCH_LIST_##N            \
                   "}, x, y, p, 1, 1, 0, 0;\n}"                                                                       \
                   : ATTNBENCH_OUT_##N                                                                                \
                   : "r"(a), "r"(b), "r"(accumulate), "r"(high));                                                     \
    }                                                                                                                 \
    static __device__ void rs(float (&d)[N / 2], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,                \
                              std::uint32_t a3, std::uint32_t b, std::uint32_t high, int accumulate) {                \
      asm volatile("{\n.reg .pred p;\n.reg .b64 y;\nmov.b64 y, {%" #I4 ", %" #I5 "};\nsetp.ne.b32 p, %" #I6           \
                   ", 0;\n"                                                                                           \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" ATTNBENCH_LIST_##N            \
                   "}, {%" #I0 ", %" #I1 ", %" #I2 ", %" #I3 "}, y, p, 1, 1, 1;\n}"                                   \
                   : ATTNBENCH_OUT_##N                                                                                \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b), "r"(high), "r"(accumulate));                         \
    }                                                                                                                 \
  };

// The operand numbers that follow N / 2 accumulators.
#define ATTNBENCH_PRODUCT_BOTH(N, I0, I1, I2, I3, I4, I5, I6)             \
  ATTNBENCH_PRODUCT(N, I0, I1, I2, I3, I4, I5, I6, __nv_bfloat16, "bf16") \
  ATTNBENCH_PRODUCT(N, I0, I1, I2, I3, I4, I5, I6, __half, "f16")

ATTNBENCH_PRODUCT_BOTH(16, 8, 9, 10, 11, 12, 13, 14)
ATTNBENCH_PRODUCT_BOTH(32, 16, 17, 18, 19, 20, 21, 22)
ATTNBENCH_PRODUCT_BOTH(64, 32, 33, 34, 35, 36, 37, 38)
ATTNBENCH_PRODUCT_BOTH(80, 40, 41, 42, 43, 44, 45, 46)
ATTNBENCH_PRODUCT_BOTH(96, 48, 49, 50, 51, 52, 53, 54)
ATTNBENCH_PRODUCT_BOTH(128, 64, 65, 66, 67, 68, 69, 70)
ATTNBENCH_PRODUCT_BOTH(192, 96, 97, 98, 99, 100, 101, 102)
ATTNBENCH_PRODUCT_BOTH(256, 128, 129, 130, 131, 132, 133, 134)

/// d (+)= a^T b over 16 values of k, m64 n64: a [16, 64] and b [16, 64] both transposed in shared memory (ds k).
template <typename T>
struct TransposedProduct;

#define ATTNBENCH_TRANSPOSED_PRODUCT(T, type)                                                                         \
  template <>                                                                                                         \
  struct TransposedProduct<T> {                                                                                       \
    static __device__ void ss(float (&d)[32], std::uint32_t a, std::uint32_t b, std::uint32_t high, int accumulate) { \
      asm volatile(                                                                                                   \
          "{\n.reg .pred p;\n.reg .b64 x, y;\nmov.b64 x, {%32, %35};\nmov.b64 y, {%33, %35};\nsetp.ne.b32 p, %34, "   \
          "0;\n"                                                                                                      \
          "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" ATTNBENCH_LIST_64                          \
          "}, x, y, p, 1, 1, 1, 1;\n}"                                                                                \
          : ATTNBENCH_OUT_64                                                                                          \
          : "r"(a), "r"(b), "r"(accumulate), "r"(high));                                                              \
    }                                                                                                                 \
  };
ATTNBENCH_TRANSPOSED_PRODUCT(__nv_bfloat16, "bf16")
ATTNBENCH_TRANSPOSED_PRODUCT(__half, "f16")

/// Exchanges registers inside a quad: lane q gets group q of every lane, so that it owns 16 contiguous bytes.
__device__ inline void transpose_quad(std::uint32_t (&a)[4]) {
  const bool odd = (threadIdx.x & 1) != 0;
  const bool high = (threadIdx.x & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? a[i] : a[i + 1], 1);
    (odd ? a[i] : a[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, high ? a[i] : a[i + 2], 2);
    (high ? a[i] : a[i + 2]) = got;
  }
}

/// Ends the life of values that the next product overwrites: its operand list names them as inputs, and without this
/// they would keep their registers until then.
template <int kCount>
__device__ inline void forget(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "=f"(registers[i]));
}

/// Pins accumulators after the wait that completed them: the compiler sees no link between the two.
template <int kCount>
__device__ inline void pin(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

}  // namespace attnbench::kernels::hopper
