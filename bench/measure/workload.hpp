// A kernel with everything it works on: device tensors, saved state, scratch, bound and ready to launch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/measure/inputs.hpp"
#include "kernels/kernel.hpp"

namespace attnbench::measure {

/// What a pass wrote, brought to host memory. Those that the pass does not write are empty.
struct Outputs {
  HostTensor o, dq, dk, dv;
  std::vector<float> lse;
};

/// Owns the buffers of one kernel on one problem. Not movable: launches refer to it.
class Workload {
 public:
  /// Allocates every tensor and both scratch areas through the device, uploads the inputs, poisons the outputs with
  /// 0xFF bytes (NaN in every dtype) and prepares the kernel.
  ///
  /// Errors  kOutOfMemory, kUnsupported, whatever the kernel's prepare reports
  static base::Result<std::unique_ptr<Workload>> make(const kernels::KernelInfo& kernel,
                                                      const kernels::Problem& problem, kernels::Pass pass,
                                                      bool deterministic, const Inputs& inputs,
                                                      kernels::Device& device);

  /// The pass as it is timed; no synchronisation.
  base::Result<void> launch() { return kernels::launch(*kernel_, pass_); }

  /// The forward that a backward needs before it, then the pass; waits for the device.
  base::Result<void> first_launch();

  base::Result<Outputs> download();

  std::string variant() const { return kernel_->variant(); }
  std::uint64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  Workload(const kernels::Problem& problem, kernels::Pass pass, kernels::Device& device)
      : problem_(problem), pass_(pass), device_(device) {}

  base::Result<void> bind(const kernels::KernelInfo& kernel, bool deterministic, const Inputs& inputs);
  base::Result<void*> allocate(std::size_t bytes);
  base::Result<kernels::Tensor> input(const HostTensor& source);
  base::Result<kernels::Tensor> output(const std::array<std::int64_t, 4>& extent);

  kernels::Problem problem_;
  kernels::Pass pass_;
  kernels::Device& device_;
  std::vector<kernels::Buffer> buffers_;
  kernels::AttentionArgs args_;
  std::uint64_t workspace_bytes_ = 0;
  std::unique_ptr<kernels::PreparedKernel> kernel_;  // last: goes before the memory it works on
};

}  // namespace attnbench::measure
