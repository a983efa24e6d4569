// The contract between the harness and a kernel: what it is, what it supports, what it needs, how it is launched.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bench/base/error.hpp"
#include "kernels/device/device.hpp"
#include "kernels/problem.hpp"
#include "kernels/tensor.hpp"

namespace attnbench::kernels {

/// Where and how a kernel would run: what supports() and footprint() may depend on beside the problem.
struct Target {
  const DeviceFacts* device = nullptr;
  int threads = 1;             // host threads (CPU)
  bool deterministic = false;  // bitwise equal results over runs are asked for
};

/// Bytes a kernel wants beside inputs and outputs.
struct Footprint {
  std::size_t workspace_bytes = 0;  // scratch, contents undefined before and after a launch; passes may share it
  std::size_t saved_bytes = 0;      // written by fwd, read by bwd: kept between the two (beside o and lse)
};

/// Largest accepted error, relative to the largest magnitude of a tensor, absolute where that is under 1.
struct Tolerance {
  double forward = 2e-5;   // o, lse
  double backward = 2e-5;  // dq, dk, dv
};

/// Everything a launch works on. Pointers are device pointers, aligned to 256 bytes where the harness allocated them.
///
/// Shapes  q, o, dout, dq [B, H, Sq, D]   k, v, dk, dv [B, Hkv, Sk, D]   lse [B, H, Sq] fp32, dense, natural log
/// Needs   backward tensors only when a backward launch will follow; o and lse are inputs of the backward
struct AttentionArgs {
  Problem problem;
  Tensor q, k, v;
  Tensor o;
  float* lse = nullptr;
  Tensor dout;
  Tensor dq, dk, dv;
  void* saved = nullptr;
  void* workspace = nullptr;
  bool deterministic = false;
};

/// A kernel bound to its tensors: descriptors, primitives and plans exist, so that a launch allocates nothing.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  /// Enqueues (CUDA) or runs (CPU) one pass; kFwdBwd is not passed here, the harness launches both.
  virtual base::Result<void> launch(Pass pass) = 0;
  /// What really runs: KernelInfo::variant, with "+..." appended where something differs (blas: "onednn+fp32").
  virtual std::string variant() const = 0;
};

/// One line of the catalog. Plain data and functions; no state.
struct KernelInfo {
  std::string_view name;     // the word of --kernels: naive, blas, flash
  std::string_view variant;  // the word after the colon: --kernels flash:highway
  std::string_view summary;  // one sentence
  std::string_view source;   // where the idea comes from
  DeviceKind device = DeviceKind::kCpu;
  bool materialises = false;  // keeps an Sq x Sk matrix: selects the byte formula and the hardware FLOP count

  /// Empty: supported. Else the reason, naming the field and what would be accepted. For kFwdBwd both passes count.
  std::optional<std::string> (*supports)(const Problem& problem, Pass pass, const Target& target) = nullptr;
  Footprint (*footprint)(const Problem& problem, Pass pass, const Target& target) = nullptr;
  Tolerance (*tolerance)(const Problem& problem) = nullptr;
  /// Called with the device current, as the launches of what it returns are: see prepare() below.
  base::Result<std::unique_ptr<PreparedKernel>> (*prepare)(const AttentionArgs& args, Device& device) = nullptr;
};

/// The project's tolerances by dtype, for kernels that have no reason to differ.
inline Tolerance default_tolerance(const Problem& problem) {
  switch (problem.dtype) {
    case Dtype::kFp32:
      return {2e-5, 2e-5};
    case Dtype::kBf16:
      return {2e-2, 2e-2};
    case Dtype::kFp16:
      return {4e-3, 4e-3};
  }
  return {};
}

/// Checks what every kernel relies on: extents against the problem, heads divisible, dtypes equal, workspace and
/// saved aligned to 64 bytes when the footprint asks for them. Returns the first violation as kUnsupported.
base::Result<void> validate(const KernelInfo& kernel, const AttentionArgs& args, Pass pass, const Target& target);

/// validate, supports, then KernelInfo::prepare: the one way in, for harness and tests alike. The device is current
/// while the kernel is bound and in each of its launches, whatever was current before; it must outlive the kernel.
base::Result<std::unique_ptr<PreparedKernel>> prepare(const KernelInfo& kernel, const AttentionArgs& args, Pass pass,
                                                      Device& device);

/// Launches fwd, bwd or both in order.
base::Result<void> launch(PreparedKernel& kernel, Pass pass);

}  // namespace attnbench::kernels
