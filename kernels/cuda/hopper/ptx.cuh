// The instructions of sm_90a that CUDA C++ has no name for: barriers in shared memory, the bulk tensor copy engine,
// register reallocation. One line of PTX each, no policy.
// Source: PTX ISA 9.0, sections on mbarrier, cp.async.bulk.tensor and setmaxnreg.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace attnbench::kernels::hopper {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers and targets are named by their address in shared memory, one register each; by a pointer, which takes two
// and a conversion, where that is at hand.

__device__ inline void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/// Makes barrier initialisation visible to the copy engine.
__device__ inline void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void barrier_expect(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void barrier_expect(std::uint64_t* barrier, int bytes) {
  barrier_expect(shared_address(barrier), bytes);
}

__device__ inline void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void barrier_arrive(std::uint64_t* barrier) { barrier_arrive(shared_address(barrier)); }

/// Blocks until the phase with this parity has completed.
__device__ inline void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ inline void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  barrier_wait(shared_address(barrier), parity);
}

/// Copies one box of a [B, H, S, D] tensor (coordinates innermost first) into shared memory; bytes count on barrier.
__device__ inline void copy_in(std::uint32_t target, const CUtensorMap* map, std::uint32_t barrier, int d, int s, int h,
                               int b) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(target),
      "l"(map), "r"(barrier), "r"(d), "r"(s), "r"(h), "r"(b)
      : "memory");
}
__device__ inline void copy_in(void* target, const CUtensorMap* map, std::uint64_t* barrier, int d, int s, int h,
                               int b) {
  copy_in(shared_address(target), map, shared_address(barrier), d, s, h, b);
}

/// Copies `bytes` (a multiple of 16) of plain memory into shared memory; they count on barrier.
__device__ inline void copy_line_in(void* target, const void* source, std::uint64_t* barrier, int bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(target)),
               "l"(source), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

/// Makes this thread's stores to shared memory visible to the copy engine and to products; a barrier must follow.
__device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// A load that is neither moved nor kept: for rare branches, which must not cost registers elsewhere.
__device__ inline float2 load_now(const float2* at) {
  float2 x;
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(at) : "memory");
  return x;
}

/// Barrier `id` (1 to 15; 0 is __syncthreads) of kThreads threads, all of whom wait.
template <int kThreads>
__device__ inline void named_sync(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

/// The same for threads that others wait for and that do not wait themselves.
template <int kThreads>
__device__ inline void named_arrive(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

/// named_sync that also returns whether `flag` held in any of the threads.
template <int kThreads>
__device__ inline bool named_sync_or(int id, bool flag) {
  std::uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred in, out;\n"
      "setp.ne.u32 in, %2, 0;\n"
      "bar.red.or.pred out, %1, %3, in;\n"
      "selp.u32 %0, 1, 0, out;\n"
      "}"
      : "=r"(any)
      : "r"(id), "r"(static_cast<std::uint32_t>(flag)), "n"(kThreads)
      : "memory");
  return any != 0;
}

__device__ inline int load_acquire(const int* from) {
  int x;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}

__device__ inline void store_release(int* to, int x) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

/// Adds four neighbouring floats to global memory, in no order.
__device__ inline void add_four(float* target, float a, float b, float c, float d) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(target), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

/// Copies one box from shared memory into a tensor, as far as the tensor reaches. Groups of copies are a thread's own.
__device__ inline void copy_out(const CUtensorMap* map, std::uint32_t source, int d, int s, int h, int b) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(source), "r"(d), "r"(s), "r"(h), "r"(b)
               : "memory");
}
__device__ inline void copy_out_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until the thread's copies have read their shared memory, or have written too.
__device__ inline void copy_out_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void copy_out_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// Stores four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline void store_matrices(std::uint32_t address, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                      std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ inline void store_matrices(void* row, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  store_matrices(shared_address(row), a, b, c, d);
}

__device__ inline void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// 2^x, about 2 ulp, subnormals flushed; 16 results per clock and SM.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The larger; NaN if either is.
__device__ inline float max_or_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

/// Two floats to a pair of 16-bit values, the first in the low half.
template <typename T>
__device__ inline std::uint32_t pack(float low, float high);

template <>
__device__ inline std::uint32_t pack<__nv_bfloat16>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

template <>
__device__ inline std::uint32_t pack<__half>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// The other way.
template <typename T>
__device__ inline float2 widen(std::uint32_t pair);

template <>
__device__ inline float2 widen<__nv_bfloat16>(std::uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

template <>
__device__ inline float2 widen<__half>(std::uint32_t pair) {
  return make_float2(__half2float(__ushort_as_half(static_cast<unsigned short>(pair & 0xffffu))),
                     __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16))));
}

/// A pair whose halves have their top bit set where the element is infinite or NaN: adding one to an exponent of all
/// ones carries into the sign bit, and into nothing else.
template <typename T>
__device__ inline std::uint32_t non_finite(std::uint32_t pair);

template <>
__device__ inline std::uint32_t non_finite<__nv_bfloat16>(std::uint32_t pair) {
  return ((pair & 0x7f807f80u) + 0x00800080u) & 0x80008000u;
}

template <>
__device__ inline std::uint32_t non_finite<__half>(std::uint32_t pair) {
  return ((pair & 0x7c007c00u) + 0x04000400u) & 0x80008000u;
}

}  // namespace attnbench::kernels::hopper
