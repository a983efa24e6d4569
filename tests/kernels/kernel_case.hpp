// What tests of kernels share: tensors that own their bytes, one way to run a kernel, one measure of error.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/catalog.hpp"
#include "kernels/oracle/oracle.hpp"

namespace attnbench::kernels {

using Index4 = std::array<std::int64_t, 4>;

/// kPadded leaves gaps between rows and has the sequence before the heads; kTransposed has an innermost stride that is
/// not 1; kDense is row-major.
enum class Layout { kDense, kPadded, kTransposed };

/// A [B, H, S, D] tensor with its bytes; every byte is 0xff (NaN) until it is set.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(const Index4& extent, Dtype dtype, Layout layout = Layout::kDense);
  HostTensor(HostTensor&&) noexcept = default;
  HostTensor& operator=(HostTensor&&) noexcept = default;

  const Tensor& view() const { return tensor_; }
  void set(const Index4& at, float value);
  float get(const Index4& at) const;
  void fill(const std::function<float(const Index4&)>& value);
  /// Elements in dense row-major order.
  std::vector<float> values() const;
  void assign(const std::vector<float>& dense);
  /// True when every byte that belongs to no element still is 0xff.
  bool gaps_untouched() const;

 private:
  std::size_t offset(const Index4& at) const;
  void each(const std::function<void(const Index4&)>& body) const;

  std::vector<unsigned char> bytes_;
  Tensor tensor_;
};

struct Inputs {
  HostTensor q, k, v, dout;
  OracleInputs oracle() const { return {q.view(), k.view(), v.view(), dout.view()}; }
};

/// Fresh N(0, 1) values times `amplitude`, rounded to the problem's dtype.
Inputs random_inputs(const Problem& problem, std::uint64_t seed, Layout layout = Layout::kDense,
                     double amplitude = 1.0);

/// Room for what a launch writes, beside lse.
struct Results {
  explicit Results(const Problem& problem, Layout layout = Layout::kDense);
  HostTensor o, dq, dk, dv;
};

/// What a launch of `pass` works on; lse, saved and workspace are left to the caller.
AttentionArgs args_of(const Problem& problem, Pass pass, const Inputs& inputs, const Results& results);

struct Outputs {
  std::vector<float> o, lse, dq, dk, dv;
  std::string variant;
};

struct RunOptions {
  int threads = 2;
  Pass pass = Pass::kFwdBwd;
  Layout layout = Layout::kDense;  // of o, dq, dk, dv
  int launches = 1;
};

/// Runs a CPU kernel through prepare and launch, with outputs, workspace and saved poisoned; fails the test when the
/// kernel writes outside any of them.
Outputs run_kernel(const KernelInfo& kernel, const Problem& problem, const Inputs& inputs,
                   const RunOptions& options = {});

/// Largest |x - reference|, relative to the largest |reference|, absolute where that is under 1. Infinity when NaN or
/// infinity stand where the reference has something else.
double error_of(const std::vector<float>& x, const std::vector<double>& reference);

/// The project's bounds for o, lse, dq, dk and dv against the oracle.
void expect_like_oracle(const KernelInfo& kernel, const Problem& problem, const Inputs& inputs,
                        const RunOptions& options = {}, std::optional<double> bound = std::nullopt);

/// What a problem is, for messages.
std::string text_of(const Problem& problem);

/// One test per kernel of the CPU catalog: a new kernel is tested by being in it.
class CpuKernel : public ::testing::TestWithParam<const KernelInfo*> {
 protected:
  const KernelInfo& kernel() const { return *GetParam(); }
};

std::string kernel_name(const ::testing::TestParamInfo<const KernelInfo*>& info);

/// A problem of one head, scale 1/sqrt(D).
Problem make_problem(std::int64_t seq_q, std::int64_t seq_k, std::int64_t head_dim, bool causal = false,
                     Dtype dtype = Dtype::kFp32);

}  // namespace attnbench::kernels
