// Problems of more than 2^31 elements in little memory: what tests of sizes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel.hpp"

namespace attnbench::kernels {

/// Address space whose pages are zero and appear when they are touched.
class Promised {
 public:
  /// Throws std::runtime_error when the system does not promise so much.
  explicit Promised(std::size_t bytes);
  ~Promised();
  Promised(const Promised&) = delete;
  Promised& operator=(const Promised&) = delete;

  /// Puts the same `period` bytes of memory over and over into [offset, offset + bytes). All three in whole pages.
  void repeat(std::size_t offset, std::size_t bytes, std::size_t period) const;

  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_;
};

/// `bytes` rounded up to whole pages.
std::size_t in_pages(std::size_t bytes);

/// Values of unit variance that take no time to make: uniform, a hash of the place.
void fill_quickly(float* values, std::int64_t count, std::uint64_t seed);

/// Elements in dense row-major order.
std::vector<float> values_of(const Tensor& tensor);

/// Runs a CPU kernel on memory of the caller's; `workspace` may be null, `saved` is made here. Throws
/// std::runtime_error with the kernel's sentence.
void run_on(const KernelInfo& kernel, AttentionArgs args, Pass pass, int threads, const Promised* workspace = nullptr);

}  // namespace attnbench::kernels
