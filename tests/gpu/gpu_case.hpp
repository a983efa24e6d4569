// What the GPU tests share: one way to run a CUDA kernel on tensors of the host, and the oracle's answer beside it.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/kernel_case.hpp"

namespace attnbench::kernels {

/// The first GPU, opened once; null without one, and then `why_no_gpu` is the sentence for the skip.
Device* gpu();
const std::string& why_no_gpu();

/// While it lives, gpu() is this device.
class UseGpu {
 public:
  explicit UseGpu(Device& device);
  ~UseGpu();
  UseGpu(const UseGpu&) = delete;
  UseGpu& operator=(const UseGpu&) = delete;
};

/// Bytes of device memory between two guards, filled with 0xff (NaN).
class GpuBlock {
 public:
  explicit GpuBlock(std::size_t bytes);
  void* data() const;
  std::size_t bytes() const { return bytes_; }
  bool guards_untouched() const;

 private:
  Buffer buffer_;
  std::size_t bytes_;
};

struct GpuOptions {
  Pass pass = Pass::kFwdBwd;
  Layout layout = Layout::kDense;  // of o, dq, dk, dv
  bool deterministic = false;
  int launches = 1;
  bool in_graph = false;                   // launched through the stopwatch, captured in a CUDA graph
  std::function<void()> before = nullptr;  // prepare and each launch
};

/// Runs a kernel with outputs, workspace and saved poisoned; fails the test when it writes outside any of them.
/// Absent when the kernel declines by name: `declined` then holds its sentence, and an empty one fails the test.
std::optional<Outputs> run_on_gpu(const KernelInfo& kernel, const Problem& problem, const Inputs& inputs,
                                  const GpuOptions& options = {}, std::string* declined = nullptr);

/// The project's bound of a problem on a GPU: 2e-5 for fp32 (5e-5 for a kernel that splits), else by dtype.
double gpu_bound(const KernelInfo& kernel, const Problem& problem);

/// Every output against the oracle, which is asked once per problem and seed. False when the kernel declined.
bool expect_like_oracle_on_gpu(const KernelInfo& kernel, const Problem& problem, const Inputs& inputs,
                               const GpuOptions& options = {});

/// One test per kernel of the CUDA catalog; skips without a GPU. `vendor` kernels are not ours to repair.
class GpuKernel : public ::testing::TestWithParam<const KernelInfo*> {
 protected:
  void SetUp() override {
    if (gpu() == nullptr) GTEST_SKIP() << why_no_gpu();
  }
  const KernelInfo& kernel() const { return *GetParam(); }
  /// Those of `dtypes` that the kernel takes, both passes, at head_dim 64.
  std::vector<Dtype> taken(std::initializer_list<Dtype> dtypes) const;
};

std::vector<const KernelInfo*> gpu_kernels();
/// Ours, and of them those for Hopper alone.
std::vector<const KernelInfo*> own_gpu_kernels();
std::vector<const KernelInfo*> forward_gpu_kernels();

#define ATTNBENCH_GPU_SUITE(suite, list)                \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite); \
  INSTANTIATE_TEST_SUITE_P(Gpu, suite, ::testing::ValuesIn(list), kernel_name)

}  // namespace attnbench::kernels
