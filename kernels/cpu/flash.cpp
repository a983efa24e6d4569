// The flash kernel of the CPU backend as the catalog sees it.
#include <cmath>
#include <string>

#include "kernels/cpu/flash_job.hpp"
#include "kernels/cpu/rows.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::kernels {
namespace {

/// Queries are multiplied by the scale before they meet the keys. Up to here products of inputs up to 2^13 do not
/// overflow, which would make inf - inf of a sum that saturates.
constexpr float kMostScale = 0x1p100f;

std::optional<std::string> supports(const Problem& problem, Pass pass, const Target& target) {
  // A block of 96 query rows of kMaxHeadDim and its scores still fit a 512 KiB L2.
  if (auto reason = cpu_declines(problem, pass, target)) return reason;
  if (std::fabs(problem.scale) > kMostScale) {
    return "flash multiplies queries by the scale first, which overflows fp32 beyond a scale of 1.2e30; try --kernels "
           "naive";
  }
  return std::nullopt;
}

std::int64_t rows_of(const Problem& p) { return p.batch * p.heads * p.seq_q; }

struct SavedLayout {
  std::size_t row_max = 0, inverse_sum = 0, out = 0;
  std::size_t bytes = 0;
};

SavedLayout saved_layout(const Problem& p) {
  FlashLayout layout;
  SavedLayout saved;
  saved.row_max = layout.take(rows_of(p));
  saved.inverse_sum = layout.take(rows_of(p));
  if (p.dtype != Dtype::kFp32) saved.out = layout.take(rows_of(p) * p.head_dim);
  saved.bytes = layout.bytes();
  return saved;
}

FlashSaved find_saved(const AttentionArgs& args) {
  FlashSaved saved;
  saved.out = args.o;
  if (args.saved == nullptr) return saved;
  const SavedLayout layout = saved_layout(args.problem);
  unsigned char* const base = static_cast<unsigned char*>(args.saved);
  saved.row_max = reinterpret_cast<float*>(base + layout.row_max);
  saved.inverse_sum = reinterpret_cast<float*>(base + layout.inverse_sum);
  if (args.problem.dtype != Dtype::kFp32) {
    saved.out = {base + layout.out, Dtype::kFp32, args.o.extent, dense_strides(args.o.extent)};
  }
  return saved;
}

Footprint footprint(const Problem& problem, Pass pass, const Target& target) {
  Footprint size;
  const FlashIsa isa = flash_isa();
  if (pass != Pass::kBwd) size.workspace_bytes = plan_flash_forward(problem, target.threads, isa).workspace_bytes;
  if (pass != Pass::kFwd) {
    size.workspace_bytes =
        std::max(size.workspace_bytes, plan_flash_backward(problem, target.threads, isa).workspace_bytes);
  }
  size.saved_bytes = saved_layout(problem).bytes;
  return size;
}

class PreparedFlash : public PreparedKernel {
 public:
  PreparedFlash(const AttentionArgs& args, CpuDevice& device) : args_(args) {
    const int threads = device.pool().threads();
    const FlashIsa isa = flash_isa();
    const FlashSaved saved = find_saved(args);
    forward_ = {&args_, plan_flash_forward(args.problem, threads, isa), saved, &device.pool()};
    backward_ = {&args_, plan_flash_backward(args.problem, threads, isa), saved, &device.pool()};
  }
  PreparedFlash(const PreparedFlash&) = delete;
  PreparedFlash& operator=(const PreparedFlash&) = delete;

  base::Result<void> launch(Pass pass) override {
    if (pass == Pass::kFwd) {
      run_flash_forward(forward_);
    } else {
      run_flash_backward(backward_);
    }
    return {};
  }

  std::string variant() const override { return "highway"; }

 private:
  AttentionArgs args_;
  FlashForwardJob forward_;
  FlashBackwardJob backward_;
};

base::Result<std::unique_ptr<PreparedKernel>> prepare_flash(const AttentionArgs& args, Device& device) {
  return std::make_unique<PreparedFlash>(args, static_cast<CpuDevice&>(device));
}

}  // namespace

/// Streams packed K and V once per block of query rows and keeps the softmax in running form; the backward recomputes
/// the weights from the saved row statistics with five products per block.
///
/// Shapes   q, o, dout, dq [B, H, Sq, D]   k, v, dk, dv [B, Hkv, Sk, D]   lse [B, H, Sq], natural log; any strides
/// Needs    D in 1..256; |scale| <= 2^100; fp32, bf16, fp16 (converted to fp32 while packing); causal, window,
/// grouped-query heads Memory   see FlashForwardPlan and FlashBackwardPlan: linear in Sq and Sk; 2 floats a row saved
/// for the backward,
///          for bf16 and fp16 also o in fp32
/// Errors   none at launch; results do not depend on thread timing (dK, dV on the number of threads, when B Hkv is
///          below four times it)
/// Source   Dao et al. 2022, algorithm 1; online softmax: Milakov & Gimelshein 2018, section 3; register tiling after
///          Goto & van de Geijn 2008
const KernelInfo& cpu_flash() {
  static const KernelInfo info{
      .name = "flash",
      .variant = "highway",
      .summary = "Tiled attention with an online softmax; never holds an Sq x Sk matrix; vectors through Highway",
      .source = "Dao et al. 2022, FlashAttention; Milakov & Gimelshein 2018, online softmax",
      .device = DeviceKind::kCpu,
      .materialises = false,
      .supports = supports,
      .footprint = footprint,
      .tolerance = default_tolerance,
      .prepare = prepare_flash,
  };
  return info;
}

}  // namespace attnbench::kernels
