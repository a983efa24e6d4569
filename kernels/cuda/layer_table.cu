// The gradient of a table: tokens sorted by word, then each word's rows added in the order of the tokens.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/layer_launch.hpp"
#include "kernels/cuda/pack.cuh"

namespace attnbench::kernels {
namespace {

constexpr int kThreads = 128;
constexpr std::size_t kAlign = 256;

std::size_t aligned_up(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

/// Parts of the scratch memory.
struct Sorting {
  std::int32_t *position, *words, *order, *first;
  void* temporary;
  std::size_t temporary_bytes;
  std::size_t bytes;

  Sorting(void* scratch, std::int64_t rows, std::int64_t vocab) : temporary_bytes(0) {
    (void)cub::DeviceRadixSort::SortPairs(nullptr, temporary_bytes, words_none(), words_none(), words_none(),
                                          words_none(), static_cast<int>(rows));
    auto* at = static_cast<char*>(scratch);
    const auto take = [&](std::size_t count) {
      char* const here = at;
      at += aligned_up(count);
      return here;
    };
    const std::size_t row_bytes = static_cast<std::size_t>(rows) * sizeof(std::int32_t);
    position = reinterpret_cast<std::int32_t*>(take(row_bytes));
    words = reinterpret_cast<std::int32_t*>(take(row_bytes));
    order = reinterpret_cast<std::int32_t*>(take(row_bytes));
    first = reinterpret_cast<std::int32_t*>(take(static_cast<std::size_t>(vocab + 1) * sizeof(std::int32_t)));
    temporary = take(temporary_bytes);
    bytes = static_cast<std::size_t>(at - static_cast<char*>(scratch));
  }

 private:
  static std::int32_t* words_none() { return nullptr; }
};

__global__ void count_up(std::int32_t* position, std::int64_t rows) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < rows) position[i] = static_cast<std::int32_t>(i);
}

/// first[v]: where the tokens of word v begin among the sorted ones.
__global__ void find_first(const std::int32_t* words, std::int64_t rows, std::int64_t vocab, std::int32_t* first) {
  const std::int64_t word = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (word > vocab) return;
  std::int64_t low = 0, high = rows;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (words[middle] < word) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  first[word] = static_cast<std::int32_t>(low);
}

template <typename T, typename Out, int kCount>
__global__ void __launch_bounds__(kThreads)
    sum_rows(EmbeddingBackward c, const std::int32_t* first, const std::int32_t* order) {
  const std::int64_t word = blockIdx.x;
  const int begin = first[word], end = first[word + 1];
  const T* const dout = static_cast<const T*>(c.dout);
  Out* const out = static_cast<Out*>(c.dtable.data) + word * c.width;
  if (c.dtable.accumulate && begin == end) return;
  for (std::int64_t j = threadIdx.x * kCount; j < c.width; j += kThreads * kCount) {
    float sums[kCount] = {};
    for (int t = begin; t < end; ++t) {
      const auto v = load<T, kCount>(dout + order[t] * c.width + j);
      for (int i = 0; i < kCount; ++i) sums[i] += widen(v.at[i]);
    }
    for (int i = 0; i < kCount; ++i) {
      out[j + i] = narrow<Out>(c.dtable.accumulate ? widen(out[j + i]) + sums[i] : sums[i]);
    }
  }
}

}  // namespace

std::size_t embedding_sort_bytes(std::int64_t rows, std::int64_t vocab) { return Sorting(nullptr, rows, vocab).bytes; }

cudaError_t launch(const EmbeddingBackward& c, cudaStream_t stream) {
  if (c.vocab == 0) return cudaSuccess;
  Sorting s(c.scratch, c.rows, c.vocab);
  const auto blocks = [](std::int64_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); };
  if (c.rows > 0) {
    count_up<<<blocks(c.rows), kThreads, 0, stream>>>(s.position, c.rows);
    const cudaError_t code = cub::DeviceRadixSort::SortPairs(s.temporary, s.temporary_bytes, c.ids, s.words, s.position,
                                                             s.order, static_cast<int>(c.rows), 0, 32, stream);
    if (code != cudaSuccess) return code;
  }
  find_first<<<blocks(c.vocab + 1), kThreads, 0, stream>>>(s.words, c.rows, c.vocab, s.first);
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) return code;
  const auto packed = [&](auto* element) { return packs<std::remove_pointer_t<decltype(element)>>(c.width, c.dout); };
  return with_pack(c.dtype, packed, [&](auto* element, auto count) {
    using T = std::remove_pointer_t<decltype(element)>;
    const auto words = static_cast<unsigned>(c.vocab);
    if (c.dtable.dtype == Dtype::kFp32) {
      sum_rows<T, float, count.value><<<words, kThreads, 0, stream>>>(c, s.first, s.order);
    } else {
      sum_rows<T, T, count.value><<<words, kThreads, 0, stream>>>(c, s.first, s.order);
    }
    return cudaGetLastError();
  });
}

}  // namespace attnbench::kernels
