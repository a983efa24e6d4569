// Tensor-core building blocks that exist from sm_80 on: mma.sync, ldmatrix, cp.async, and 16-bit packing.
//
// Fragment layouts of mma.m16n8k16 (lane = 4 g + t, so g = lane / 4, t = lane % 4), one register = two neighbours in k:
//   A  a0 = (row g, k 2t..)   a1 = (row g+8, k 2t..)   a2 = (row g, k 2t+8..)   a3 = (row g+8, k 2t+8..)
//   B  b0 = (k 2t.., col g)   b1 = (k 2t+8.., col g)
//   C  c0 c1 = (row g, col 2t, 2t+1)   c2 c3 = (row g+8, col 2t, 2t+1)
// Two C tiles side by side hold exactly one A fragment (columns become k), so P and dS feed the next product from
// registers. ldmatrix gives lane 4g+t the pair (row g, columns 2t, 2t+1) of each 8x8 matrix, or with .trans the pair
// (rows 2t, 2t+1, column g).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace attnbench::kernels::flash_cuda {

using Bf16Element = __nv_bfloat16;
using Fp16Element = __half;

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// 16 bytes from global to shared memory behind the program's back; zeros when not valid (nothing is read then).
__device__ __forceinline__ void cp_async_16(std::uint32_t target, const void* source, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(target), "l"(source), "r"(bytes));
}

__device__ __forceinline__ void cp_async_8(std::uint32_t target, const void* source, bool valid) {
  const int bytes = valid ? 8 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(target), "l"(source), "r"(bytes));
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::); }

/// Returns when at most `Pending` of this thread's groups are still on their way.
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Pending) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

/// 2^x, flushing denormals; ex2(-inf) = 0 exactly.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// What the two 16-bit formats do differently. `kExponent`: exponent bits of both halves of a register.
template <typename E>
struct Element;

template <>
struct Element<Bf16Element> {
  static constexpr std::uint32_t kExponent = 0x7f807f80u;
  static constexpr std::uint32_t kExponentCarry = 0x00800080u;

  static __device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ std::uint32_t pack(float low, float high) {
    std::uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
  static __device__ __forceinline__ float low(std::uint32_t r) { return __uint_as_float(r << 16); }
  static __device__ __forceinline__ float high(std::uint32_t r) { return __uint_as_float(r & 0xffff0000u); }
  static __device__ __forceinline__ float to_float(Bf16Element x) { return __bfloat162float(x); }
  static __device__ __forceinline__ Bf16Element from_float(float x) { return __float2bfloat16_rn(x); }
};

template <>
struct Element<Fp16Element> {
  static constexpr std::uint32_t kExponent = 0x7c007c00u;
  static constexpr std::uint32_t kExponentCarry = 0x04000400u;

  static __device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ std::uint32_t pack(float low, float high) {
    std::uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
  static __device__ __forceinline__ float low(std::uint32_t r) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(r & 0xffffu)));
  }
  static __device__ __forceinline__ float high(std::uint32_t r) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(r >> 16)));
  }
  static __device__ __forceinline__ float to_float(Fp16Element x) { return __half2float(x); }
  static __device__ __forceinline__ Fp16Element from_float(float x) { return __float2half_rn(x); }
};

/// A register whose halves have their top bit set where the element is infinite or NaN: adding one to an exponent of
/// all ones carries into the sign bit, and into nothing else.
template <typename E>
__device__ __forceinline__ std::uint32_t non_finite_bits(std::uint32_t r) {
  return ((r & Element<E>::kExponent) + Element<E>::kExponentCarry) & 0x80008000u;
}

/// Infinite and NaN halves replaced by zero.
template <typename E>
__device__ __forceinline__ std::uint32_t finite_or_zero(std::uint32_t r) {
  const std::uint32_t carry = (r & Element<E>::kExponent) + Element<E>::kExponentCarry;
  // 0xbb99 replicates the two sign bits over their halves; __byte_perm would drop that mode (it masks it off).
  std::uint32_t mask;
  asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(mask) : "r"(carry));
  return r & ~mask;
}

/// Splits the pair into 16-bit planes: plane 0 rounds, plane 1 holds what plane 0 lost (kPlanes 2 only).
/// bf16: |x - hi - lo| <= 2^-18 |x|.
template <typename E, int kPlanes>
__device__ __forceinline__ void pack_planes(std::uint32_t (&r)[kPlanes], float low, float high) {
  r[0] = Element<E>::pack(low, high);
  if constexpr (kPlanes == 2) {
    r[1] = Element<E>::pack(low - Element<E>::low(r[0]), high - Element<E>::high(r[0]));
  }
}

}  // namespace attnbench::kernels::flash_cuda
