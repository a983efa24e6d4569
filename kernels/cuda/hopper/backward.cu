// The wgmma backward on the host's side: three launches, bound to one problem's tensors.
#include <algorithm>
#include <string>

#include "kernels/cuda/hopper/backward.hpp"
#include "kernels/cuda/hopper/backward_plan.cuh"
#include "kernels/cuda/hopper/tensor_map.hpp"
#include "kernels/device/cuda_error.hpp"

namespace attnbench::kernels::hopper {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

constexpr const BackwardInstance* kInstances[] = {
#ifndef ATTNBENCH_KERNEL_SET_CI
    &kBackwardD96, &kBackwardD192, &kBackwardD256,
#endif
    &kBackwardD64, &kBackwardD128};

const BackwardInstance* instance_of(std::int64_t head_dim) {
  for (const BackwardInstance* instance : kInstances) {
    if (instance->head_dim == head_dim) return instance;
  }
  return nullptr;
}

std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

/// Where each scratch array starts in the workspace.
struct Scratch {
  std::size_t lse, delta, dq_sum, counter, turns, end;
};

Scratch scratch_of(const Problem& p, const BackwardInstance& instance, bool deterministic) {
  const auto rows = static_cast<std::size_t>(p.batch * p.heads * round_up(p.seq_q, instance.tile_m));
  std::size_t end = 0;
  const auto take = [&](std::size_t bytes) {
    const std::size_t start = end;
    end += (bytes + 255) / 256 * 256;
    return start;
  };
  Scratch at{};
  at.lse = take(rows * sizeof(float));
  at.delta = take(rows * sizeof(float));
  at.dq_sum = take(rows * static_cast<std::size_t>(chunks_of(instance.head_dim)) * 64 * sizeof(float));
  at.counter = take(sizeof(int));
  if (deterministic) at.turns = take(rows / static_cast<std::size_t>(instance.tile_m) * 2 * sizeof(int));
  at.end = end;
  return at;
}

flash_cuda::Shape shape_of(const Problem& p) {
  flash_cuda::Shape shape;
  shape.heads = static_cast<int>(p.heads);
  shape.group = static_cast<int>(p.heads / p.kv_heads);
  shape.seq_q = static_cast<int>(p.seq_q);
  shape.seq_k = static_cast<int>(p.seq_k);
  shape.head_dim = static_cast<int>(p.head_dim);
  shape.causal = p.causal ? 1 : 0;
  // A window longer than both sequences sees everything.
  shape.window = p.window_left > p.seq_q + p.seq_k ? -1 : static_cast<int>(p.window_left);
  shape.scale = p.scale;
  return shape;
}

void plan_params(BackwardPlan& plan, const AttentionArgs& args, const BackwardInstance& instance, int multiprocessors) {
  const Problem& p = args.problem;
  const Scratch at = scratch_of(p, instance, args.deterministic);
  char* const base = static_cast<char*>(args.workspace);
  BackwardParams& params = plan.params;
  params.shape = shape_of(p);
  params.rows = static_cast<int>(round_up(p.seq_q, instance.tile_m));
  params.order.tiles = static_cast<int>(round_up(p.seq_k, instance.keys) / instance.keys);
  params.order.heads = p.batch * p.kv_heads;
  // Heads whose Q, dO and fp32 dQ together fit half of a 60 MB L2 are worked on at the same time.
  const std::int64_t head_bytes = 8 * p.seq_q * p.head_dim * params.shape.group;
  params.order.section =
      static_cast<int>(std::clamp<std::int64_t>((std::int64_t{32} << 20) / head_bytes, 1, params.order.heads));
  params.tiles = static_cast<int>(params.order.tiles * params.order.heads);
  const bool reversed = args.deterministic && p.causal;  // see turn_of
  params.first_tile = reversed ? params.order.tiles - 1 : 0;
  params.tile_step = reversed ? -1 : 1;
  float* const stat_lse = reinterpret_cast<float*>(base + at.lse);
  float* const stat_delta = reinterpret_cast<float*>(base + at.delta);
  params.saved = static_cast<const float2*>(args.saved);
  params.lse = stat_lse;
  params.delta = stat_delta;
  params.dq_sum = reinterpret_cast<float*>(base + at.dq_sum);
  params.counter = reinterpret_cast<int*>(base + at.counter);
  params.turns = args.deterministic ? reinterpret_cast<int*>(base + at.turns) : nullptr;
  params.k = rows_of(args.k);
  params.dk = rows_of(args.dk);
  params.dv = rows_of(args.dv);
  const long long all_rows = p.batch * p.heads * params.rows;
  plan.rows = {rows_of(args.o),
               rows_of(args.dout),
               args.lse,
               stat_lse,
               stat_delta,
               params.dq_sum,
               params.counter,
               params.turns,
               args.deterministic ? all_rows / instance.tile_m * 2 : 0,
               params.shape.heads,
               params.shape.seq_q,
               params.rows,
               all_rows};
  plan.convert = {params.dq_sum,
                  args.dq.data,
                  args.dq.stride[0],
                  args.dq.stride[1],
                  args.dq.stride[2],
                  params.shape.heads,
                  params.shape.seq_q,
                  params.rows / 64 * chunks_of(instance.head_dim),
                  p.scale};
  plan.unseen = params.shape.window >= 0 && p.seq_k - p.seq_q > params.shape.window;
  plan.grid = std::min(multiprocessors, params.tiles);
}

class WgmmaBackward : public PreparedKernel {
 public:
  WgmmaBackward(const BackwardEntry& entry, const BackwardPlan& plan, cudaStream_t stream)
      : entry_(entry), plan_(plan), stream_(stream) {}

  Result<void> launch(Pass pass) override {
    if (pass != Pass::kBwd) return fail(ErrorKind::kUnsupported, "the wgmma backward has no forward");
    return check_cuda(entry_.launch(plan_, stream_), "launching the backward of flash:wgmma");
  }

  std::string variant() const override { return "wgmma"; }

 private:
  BackwardEntry entry_;
  BackwardPlan plan_;
  cudaStream_t stream_;
};

}  // namespace

std::optional<std::string> backward_declines(const Problem& p, const Target& target) {
  if (target.device->compute_capability != 90) return "flash:wgmma runs on compute capability 9.0 only; use flash:mma";
  if (p.dtype == Dtype::kFp32) return "flash:wgmma takes bf16 and fp16, not fp32; use flash:mma";
  const BackwardInstance* instance = instance_of(p.head_dim);
  if (instance == nullptr) {
    return "the backward of flash:wgmma has no tile for head_dim " + std::to_string(p.head_dim) + "; use flash:mma";
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 28;  // sums of positions and of a window fit 32 bits
  if (p.batch * p.heads * p.seq_q * p.seq_k == 0 || p.seq_q > kMost || p.seq_k > kMost) {
    return "the backward of flash:wgmma takes neither empty tensors nor 2^28 keys or queries; use flash:mma";
  }
  constexpr std::int64_t kRows = (std::int64_t{1} << 31) - 1;
  if (p.batch * p.heads * round_up(p.seq_q, instance->tile_m) > kRows ||
      p.batch * p.kv_heads * round_up(p.seq_k, instance->keys) > kRows) {
    return "the backward of flash:wgmma counts rows of all heads up to 2^31 - 1; use flash:mma";
  }
  return std::nullopt;
}

std::size_t backward_workspace(const Problem& p, bool deterministic) {
  const BackwardInstance* instance = instance_of(p.head_dim);
  return instance == nullptr ? 0 : scratch_of(p, *instance, deterministic).end;
}

bool backward_takes(const AttentionArgs& args) {
  if (tensor_map_encoder() == nullptr) return false;
  for (const Tensor* t : {&args.q, &args.k, &args.v, &args.o, &args.dout, &args.dq, &args.dk, &args.dv}) {
    if (!copy_engine_takes(*t)) return false;
  }
  return true;
}

Result<std::unique_ptr<PreparedKernel>> prepare_backward(const AttentionArgs& args, Device& device) {
  const BackwardInstance& instance = *instance_of(args.problem.head_dim);
  const BackwardEntry& entry = instance.entry(args.problem.dtype, args.deterministic);
  if (auto ok = check_cuda(entry.allow(), "giving flash:wgmma its shared memory"); !ok) {
    return tl::unexpected(ok.error());
  }
  BackwardPlan plan;
  if (!make_tensor_map(plan.q, args.q, instance.tile_m) || !make_tensor_map(plan.k, args.k, instance.keys) ||
      !make_tensor_map(plan.v, args.v, instance.keys) || !make_tensor_map(plan.dout, args.dout, instance.tile_m)) {
    return fail(ErrorKind::kFailed, "flash:wgmma: the driver declines a tensor map of these strides; use flash:mma");
  }
  plan_params(plan, args, instance, device.facts().cores);
  return std::make_unique<WgmmaBackward>(entry, plan, static_cast<cudaStream_t>(device.stream()));
}

}  // namespace attnbench::kernels::hopper
