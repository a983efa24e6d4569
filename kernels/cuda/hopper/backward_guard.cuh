// What a masked step of the backward does so that values stored at masked positions reach nothing.
//
// A hidden position has P = dS = 0, but zero times a stored NaN or infinity is NaN, and products mix all rows of a
// tile. So a masked step looks for such values in its Q, dO and K. Where it finds any, it takes them out of shared
// memory once S and dP are computed; at visible positions they have already made P or dS NaN, except that one in dO
// must still reach dV, column by column.
#pragma once

#include "kernels/cuda/hopper/backward.cuh"

namespace attnbench::kernels::hopper {

inline constexpr int kGuardBarrier = 2;  // named: the steps of a guard

/// sum + 0 x, pair by pair: NaN for good once an x is not finite.
template <typename T>
__device__ inline void watch(std::uint32_t& sum, std::uint32_t x);

template <>
__device__ inline void watch<__nv_bfloat16>(std::uint32_t& sum, std::uint32_t x) {
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(0));
}

template <>
__device__ inline void watch<__half>(std::uint32_t& sum, std::uint32_t x) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(0));
}

/// Whether this thread's share of a tile holds a value that is not finite.
template <typename T, int kBytes>
__device__ inline bool odd_in(const char* tile, int thread) {
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kBytes / 16 / kConsumerThreads; ++i) {
    const uint4 x = *reinterpret_cast<const uint4*>(tile + (i * kConsumerThreads + thread) * 16);
    for (const std::uint32_t word : {x.x, x.y, x.z, x.w}) watch<T>(sum, word);
  }
  return flash_cuda::non_finite_bits<T>(sum) != 0;
}

/// Zeros in place of what is not finite, in this thread's share of a tile.
template <typename T, int kBytes>
__device__ inline void take_out(char* tile, int thread) {
#pragma unroll 1
  for (int i = thread; i < kBytes / 4; i += kConsumerThreads) {
    std::uint32_t& word = reinterpret_cast<std::uint32_t*>(tile)[i];
    word = flash_cuda::finite_or_zero<T>(word);
  }
}

/// Puts K back as it is in global memory, this thread's share.
template <typename Shape>
__device__ inline void put_back(char* tile, const Rows& k, const BackwardTile& at, int seq_k, int thread) {
  constexpr int kPieces = Shape::kHeadDim / 8;
  const char* source = static_cast<const char*>(k.data) + 2 * (at.batch * k.batch + at.kv_head * k.head);
#pragma unroll 1
  for (int i = thread; i < Shape::kKeys * kPieces; i += kConsumerThreads) {
    const int row = i / kPieces;
    const int piece = i % kPieces;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (at.key0 + row < seq_k) {
      x = *reinterpret_cast<const uint4*>(source + 2 * (at.key0 + row) * k.row + piece * 16);
    }
    char* to = tile + piece / 8 * (Shape::kKeys * 128) + row * 128 + ((piece % 8) ^ (row % 8)) * 16;
    *reinterpret_cast<uint4*>(to) = x;
  }
}

/// Adds to dV the values of dO that are not finite, where the key is seen. `key`: the thread's first row.
template <typename T, typename Shape>
__device__ inline void add_odd(float (&dv)[Shape::kHeadDim / 2], const char* output, const flash_cuda::Shape& shape,
                               int key, int query0, int lane) {
  flash_cuda::Range range[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    range[half] = flash_cuda::visible_queries(shape, key + 8 * half);
    if (key + 8 * half >= shape.seq_k) range[half] = {0, 0};
  }
#pragma unroll 1
  for (int row = 0; row < Shape::kTileM; ++row) {
    const bool sees[2] = {query0 + row >= range[0].begin && query0 + row < range[0].end,
                          query0 + row >= range[1].begin && query0 + row < range[1].end};
#pragma unroll
    for (int j = 0; j < Shape::kHeadDim / 8; ++j) {
      const char* at = output + j / 8 * (Shape::kTileM * 128) + row * 128 + ((j % 8) ^ (row % 8)) * 16 + lane % 4 * 4;
      const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(at);
      const std::uint32_t bits = flash_cuda::non_finite_bits<T>(pair);
      if (bits == 0) continue;
      const float low = bits & 0x00008000u ? flash_cuda::Element<T>::low(pair) : 0.f;
      const float high = bits & 0x80000000u ? flash_cuda::Element<T>::high(pair) : 0.f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!sees[half]) continue;
        dv[4 * j + 2 * half] += low;
        dv[4 * j + 2 * half + 1] += high;
      }
    }
  }
}

/// Takes what is not finite out of Q, dO and K of a masked step, whose S and dP are computed, all consumers together;
/// true if there was any. `keep` is called on dO before: dV must have its share of that.
template <typename T, typename Shape, typename Cursor, typename Keep>
__device__ inline bool guard_step(const Cursor& at, Keep&& keep) {
  int all = at.group * 128 + at.thread;
  asm volatile("" : "+r"(all));  // so that no address is computed, and kept, outside of this rare branch
  char* const query = at.query();
  char* const output = at.output();
  char* const keys = at.key_tile();
  const bool odd = odd_in<T, Shape::kQueryBytes>(query, all) | odd_in<T, Shape::kQueryBytes>(output, all) |
                   odd_in<T, Shape::kKeyBytes>(keys, all);
  if (!named_sync_or<kConsumerThreads>(kGuardBarrier, odd)) return false;
  keep(output);
  named_sync<kConsumerThreads>(kGuardBarrier);
  take_out<T, Shape::kQueryBytes>(query, all);
  take_out<T, Shape::kQueryBytes>(output, all);
  take_out<T, Shape::kKeyBytes>(keys, all);
  fence_async_proxy();
  named_sync<kConsumerThreads>(kGuardBarrier);
  return true;
}

/// Undoes the guard's work on K, once every consumer's dQ is computed.
template <typename Shape, typename Cursor>
__device__ inline void restore_keys(const Cursor& at) {
  named_sync<kConsumerThreads>(kGuardBarrier);
  int all = at.group * 128 + at.thread;
  asm volatile("" : "+r"(all));
  put_back<Shape>(at.key_tile(), at.p.k, at.tile(), at.p.shape.seq_k, all);
  fence_async_proxy();
  named_sync<kConsumerThreads>(kGuardBarrier);
}

}  // namespace attnbench::kernels::hopper
