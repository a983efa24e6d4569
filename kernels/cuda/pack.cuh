// Runs of elements that are loaded and stored as one, and sums over a warp.
#pragma once

#include <cstdint>

#include "kernels/cuda/element.cuh"

namespace attnbench::kernels {

/// kCount elements, aligned to their size together: 16 bytes at the most.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

template <typename T>
constexpr int kPackOf = static_cast<int>(16 / sizeof(T));

template <typename T, int kCount>
__device__ Pack<T, kCount> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
template <typename T, int kCount>
__device__ void store(T* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

/// In every lane; the order of additions is fixed.
__device__ inline float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

/// Whether rows of `width` elements that begin at these pointers can be read 16 bytes at a time.
template <typename T, typename... Pointers>
bool packs(std::int64_t width, const Pointers*... pointers) {
  return width % kPackOf<T> == 0 && ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

/// Calls `call` with a null pointer of the element type and with the elements of a pack: as many as fit 16 bytes where
/// `packed` says so for the type, else one.
template <typename Packed, typename Call>
auto with_pack(Dtype dtype, const Packed& packed, const Call& call) {
  return with_element(dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    if (packed(element)) return call(element, std::integral_constant<int, kPackOf<T>>());
    return call(element, std::integral_constant<int, 1>());
  });
}

}  // namespace attnbench::kernels
