// Blocks that stay in the first cache, so that every part is read once and `out` written once.
#include "fsdp/reduce.hpp"

#include <algorithm>
#include <array>

namespace attnbench::fsdp {
namespace {

constexpr std::int64_t kBlock = 2048;  // 8 KiB of sums beside the part that is added

template <typename T>
void add(float* sums, const T* part, std::int64_t count, bool assign) {
  if (assign) {
    for (std::int64_t i = 0; i < count; ++i) sums[i] = kernels::to_float(part[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) sums[i] += kernels::to_float(part[i]);
  }
}

template <typename T>
void sum(float* out, bool accumulate, std::span<const void* const> parts, std::int64_t count) {
  std::array<float, kBlock> sums{};
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    if (accumulate) std::copy_n(out + begin, length, sums.data());
    bool assign = !accumulate;
    for (const void* part : parts) {
      add(sums.data(), static_cast<const T*>(part) + begin, length, assign);
      assign = false;
    }
    std::copy_n(sums.data(), length, out + begin);
  }
}

}  // namespace

void sum_in_order(float* out, bool accumulate, std::span<const void* const> parts, Dtype wire, std::int64_t count) {
  switch (wire) {
    case Dtype::kFp32:
      return sum<float>(out, accumulate, parts, count);
    case Dtype::kBf16:
      return sum<kernels::Bf16>(out, accumulate, parts, count);
    case Dtype::kFp16:
      return sum<kernels::Fp16>(out, accumulate, parts, count);
  }
}

}  // namespace attnbench::fsdp
