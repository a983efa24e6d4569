// flash:wgmma as the catalog sees it: its forward and its backward, each bound to the tensors it needs.
#include <algorithm>
#include <utility>

#include "kernels/cuda/flash.hpp"
#include "kernels/cuda/hopper/backward.hpp"

namespace attnbench::kernels {

const KernelInfo& cuda_flash_wgmma_forward();

namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

std::optional<std::string> forward_declines(const Problem& p, const Target& target) {
  return cuda_flash_wgmma_forward().supports(p, Pass::kFwd, target);
}

/// A forward and a backward together runs the portable forward where wgmma has none: the row's variant says so.
std::optional<std::string> supports(const Problem& p, Pass pass, const Target& target) {
  if (pass == Pass::kFwd) return forward_declines(p, target);
  if (auto reason = hopper::backward_declines(p, target)) return reason;
  return cuda_flash().supports(p, pass, target);
}

/// Strides that the copy engine does not take send a problem to the portable kernel, which needs its own scratch.
Footprint footprint(const Problem& p, Pass pass, const Target& target) {
  Footprint size = cuda_flash().footprint(p, pass, target);
  if (pass != Pass::kFwd) {
    size.workspace_bytes = std::max(size.workspace_bytes, hopper::backward_workspace(p, target.deterministic));
  }
  return size;
}

class Wgmma : public PreparedKernel {
 public:
  Wgmma(std::unique_ptr<PreparedKernel> forward, std::unique_ptr<PreparedKernel> backward)
      : forward_(std::move(forward)), backward_(std::move(backward)) {}

  Result<void> launch(Pass pass) override {
    return pass == Pass::kFwd ? forward_->launch(Pass::kFwd) : backward_->launch(Pass::kBwd);
  }

  std::string variant() const override {
    return forward_->variant() == "wgmma" ? "wgmma" : "wgmma+forward_" + forward_->variant();
  }

 private:
  std::unique_ptr<PreparedKernel> forward_, backward_;
};

Result<std::unique_ptr<PreparedKernel>> prepare_wgmma(const AttentionArgs& args, Device& device) {
  const bool backward = args.dq.data != nullptr || args.dk.data != nullptr || args.dv.data != nullptr;
  if (!backward) return cuda_flash_wgmma_forward().prepare(args, device);
  if (!hopper::backward_takes(args)) return cuda_flash().prepare(args, device);
  const Target target{&device.facts(), 1, args.deterministic};
  const KernelInfo& forward = forward_declines(args.problem, target) ? cuda_flash() : cuda_flash_wgmma_forward();
  auto first = forward.prepare(args, device);
  if (!first) return first;
  auto second = hopper::prepare_backward(args, device);
  if (!second) return second;
  return std::make_unique<Wgmma>(std::move(*first), std::move(*second));
}

}  // namespace

/// Attention by wgmma, fed by the copy engine, forward and backward.
///
/// Shapes  q, o, dout, dq [B, H, Sq, D]   k, v, dk, dv [B, Hkv, Sk, D]   lse [B, H, Sq], natural log
/// Needs   compute capability 9.0; bf16 or fp16; what the two passes take: see cuda_flash_wgmma_forward() and
///         hopper::backward_declines()
/// Memory  forward 8 bytes of counters; backward fp32 sums of dQ, lse and delta, rounded up to whole tiles
/// Errors  launch errors only; P and dS are rounded to 16 bits, see tolerance()
/// Source  Shah et al. 2024, arXiv:2407.08608
const KernelInfo& cuda_flash_wgmma() {
  static const KernelInfo info = [] {
    KernelInfo wgmma = cuda_flash_wgmma_forward();
    wgmma.summary = "forward and backward by wgmma, fed by the copy engine, persistent blocks";
    wgmma.supports = &supports;
    wgmma.footprint = &footprint;
    wgmma.prepare = &prepare_wgmma;
    return wgmma;
  }();
  return info;
}

}  // namespace attnbench::kernels
