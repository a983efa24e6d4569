// The golden attention files as the kernel tests read them, on a CPU and on a GPU.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/measure/golden.hpp"
#include "tests/kernels/kernel_case.hpp"

namespace attnbench::kernels {

struct GoldenCase {
  std::string name;  // of the file, without folder and ending
  measure::Golden golden;

  Inputs inputs(Dtype dtype) const;
  /// The bound of a kernel whose bound is `usual` elsewhere: logits of several hundred are known to 1e-4 in fp32, and
  /// 1e-3 is allowed of the weights made from them.
  double bound(Dtype dtype, double usual) const;
  /// The outputs of a kernel against the file, the backward's included.
  void expect_near(const Outputs& out, double bound) const;
};

/// ATTNBENCH_GOLDEN, else where this was built, else below the current folder: a carried program has no source tree.
std::filesystem::path golden_folder();

/// Every attention_*.safetensors there, read once. Throws std::runtime_error with the reader's sentence.
const std::vector<GoldenCase>& golden_cases();

/// How many there are; fewer means that files are missing.
inline constexpr std::size_t kGoldenCases = 15;

}  // namespace attnbench::kernels
