// The forward of flash:wgmma, with Hopper's own instructions: the tile that a problem gets, and how it is bound.
#include <string>

#include "kernels/cuda/flash.hpp"
#include "kernels/cuda/hopper/forward_plan.cuh"
#include "kernels/device/cuda_error.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using hopper::ForwardInstance;

/// The last row of the tables that fits.
const ForwardInstance* choose(const Problem& p, int multiprocessors) {
  const ForwardInstance* chosen = nullptr;
  const bool masked = p.causal || p.window_left >= 0;
  for (const auto& table : hopper::forward_tables()) {
    for (const ForwardInstance& row : table) {
      const hopper::TileChoice& tile = row.tile;
      if (tile.head_dim != p.head_dim || tile.masked != masked || p.seq_k < tile.keys_from) continue;
      if (tile.most_tiles == hopper::kOneWave && hopper::tiles_of(p, tile) > multiprocessors) continue;
      chosen = &row;
    }
  }
  return chosen;
}

std::optional<std::string> supports(const Problem& p, Pass pass, const Target& target) {
  if (target.device->compute_capability != 90) return "flash:wgmma runs on compute capability 9.0 only; use flash:mma";
  if (pass != Pass::kFwd) return "the wgmma forward has no backward";
  if (p.dtype == Dtype::kFp32) return "flash:wgmma takes bf16 and fp16, not fp32; use flash:mma";
  const ForwardInstance* row = choose(p, target.device->cores);
  if (row == nullptr) {
    return "flash:wgmma has no tile for head_dim " + std::to_string(p.head_dim) + "; use flash:mma";
  }
  if (!(p.scale > 0.f)) return "flash:wgmma needs a positive scale; use flash:mma";
  constexpr std::int64_t kMost = hopper::kFar / 2;  // places of queries and keys, and sums of two, fit 32 bits
  if (p.batch * p.heads * p.seq_q * p.seq_k == 0 || p.seq_q > kMost || p.seq_k > kMost ||
      hopper::tiles_of(p, row->tile) > kMost) {
    return "flash:wgmma takes neither empty tensors nor 2^28 keys, queries or tiles and more; use flash:mma";
  }
  return cuda_flash().supports(p, pass, target);
}

class WgmmaForward : public PreparedKernel {
 public:
  WgmmaForward(const hopper::ForwardEntry& entry, const hopper::ForwardPlan& plan, cudaStream_t stream, Buffer counters)
      : entry_(entry), plan_(plan), stream_(stream), counters_(std::move(counters)) {}

  Result<void> launch(Pass pass) override {
    if (pass != Pass::kFwd) return fail(ErrorKind::kUnsupported, "the wgmma forward has no backward");
    return check_cuda(entry_.launch(plan_, stream_), "launching flash:wgmma");
  }

  std::string variant() const override { return "wgmma"; }

 private:
  hopper::ForwardEntry entry_;
  hopper::ForwardPlan plan_;
  cudaStream_t stream_;
  Buffer counters_;
};

Result<std::unique_ptr<PreparedKernel>> prepare_wgmma(const AttentionArgs& args, Device& device) {
  // Strides that the copy engine does not take: the portable kernel runs, and the row says so.
  if (!hopper::engine_takes(args)) return cuda_flash().prepare(args, device);
  const ForwardInstance& row = *choose(args.problem, device.facts().cores);
  const hopper::ForwardEntry& entry = args.problem.dtype == Dtype::kBf16 ? row.bf16 : row.fp16;
  if (auto ok = check_cuda(entry.allow(), "giving flash:wgmma its shared memory"); !ok) {
    return tl::unexpected(ok.error());
  }
  auto counters = device.allocate(2 * sizeof(int));
  if (!counters) return tl::unexpected(counters.error());
  if (auto ok = device.fill_bytes(counters->data(), 0, 2 * sizeof(int)); !ok) return tl::unexpected(ok.error());
  auto plan = hopper::plan_forward(args, row.tile, device.facts().cores, static_cast<int*>(counters->data()));
  if (!plan) return tl::unexpected(plan.error());
  return std::make_unique<WgmmaForward>(entry, *plan, static_cast<cudaStream_t>(device.stream()), std::move(*counters));
}

}  // namespace

/// Forward attention by wgmma, fed by the copy engine. The backward is hopper::prepare_backward()'s; cuda_flash_wgmma()
/// puts both together.
///
/// Shapes  q [B, H, Sq, D]   k, v [B, Hkv, Sk, D]   out [B, H, Sq, D]   lse [B, H, Sq], natural log
/// Needs   compute capability 9.0; bf16 or fp16; D in {16, 32, 64, 96, 128, 192, 256}; scale > 0
/// Memory  8 bytes of counters
/// Errors  launch errors only; P is rounded to 16 bits, see tolerance()
/// Source  Shah et al. 2024, arXiv:2407.08608; Milakov & Gimelshein 2018, section 3
const KernelInfo& cuda_flash_wgmma_forward() {
  static const KernelInfo info = [] {
    KernelInfo wgmma = cuda_flash();
    wgmma.variant = "wgmma";
    wgmma.summary = "forward by wgmma, fed by the copy engine, persistent blocks, any mask";
    wgmma.source = "Shah et al. 2024, arXiv:2407.08608";
    wgmma.supports = &supports;
    wgmma.prepare = &prepare_wgmma;
    return wgmma;
  }();
  return info;
}

}  // namespace attnbench::kernels
