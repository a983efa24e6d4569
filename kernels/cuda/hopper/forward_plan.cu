// Tensor maps and parameters of the Hopper forward.
#include <algorithm>

#include "kernels/cuda/hopper/forward_plan.cuh"
#include "kernels/cuda/hopper/tensor_map.hpp"

namespace attnbench::kernels::hopper {
std::span<const std::span<const ForwardInstance>> forward_tables() {
  static const std::span<const ForwardInstance> all[] = {
      forward_d64(), forward_d128(),
#ifndef ATTNBENCH_KERNEL_SET_CI
      forward_d16(), forward_d32(),  forward_d96(), forward_d192(), forward_d256(),
#endif
  };
  return all;
}

std::int64_t tiles_of(const Problem& p, const TileChoice& tile) {
  const std::int64_t tile_m = 64 * tile.consumers;
  return (p.seq_q + tile_m - 1) / tile_m * p.batch * p.heads;
}

bool engine_takes(const AttentionArgs& args) {
  return tensor_map_encoder() != nullptr && copy_engine_takes(args.q) && copy_engine_takes(args.k) &&
         copy_engine_takes(args.v) && copy_engine_takes(args.o);
}

void order_tiles(ForwardParams& params, int heads, int section, int last_heads) {
  params.section = Divisor(section);
  params.section_tiles = Divisor(section * params.tiles_m);
  params.last_heads = last_heads;
  params.last_section = Divisor(std::max(1, heads - last_heads));
}

base::Result<ForwardPlan> plan_forward(const AttentionArgs& args, const TileChoice& tile, int multiprocessors,
                                       int* counters) {
  const Problem& p = args.problem;
  ForwardPlan plan{};
  const int columns = std::min(64, tile.head_dim);
  if (!make_tensor_map(plan.q, args.q, 64 * tile.consumers, columns) ||
      !make_tensor_map(plan.k, args.k, tile.tile_n, columns) ||
      !make_tensor_map(plan.v, args.v, tile.tile_n, columns) || !make_tensor_map(plan.o, args.o, 16, columns)) {
    return base::fail(base::ErrorKind::kFailed,
                      "flash:wgmma: the driver declines a tensor map of these strides; use flash:mma");
  }
  ForwardParams& params = plan.params;
  params.heads = Divisor(static_cast<int>(p.heads));
  params.group = Divisor(static_cast<int>(p.heads / p.kv_heads));
  params.seq_q = static_cast<int>(p.seq_q);
  params.seq_k = static_cast<int>(p.seq_k);
  params.behind = p.window_left < 0 ? kFar : static_cast<int>(std::min<std::int64_t>(p.window_left, kFar));
  params.ahead = p.causal ? 0 : kFar;
  params.scale_log2 = p.scale * 1.4426950408889634f;
  params.lse = args.lse;
  params.saved = static_cast<float2*>(args.saved);
  params.out = args.o.data;
  params.out_stride_b = args.o.stride[0];
  params.out_stride_h = args.o.stride[1];
  params.out_stride_s = args.o.stride[2];
  params.q = rows_of(args.q);
  params.k = rows_of(args.k);
  params.v = rows_of(args.v);
  params.counters = counters;
  params.tiles_m = static_cast<int>((p.seq_q + 64 * tile.consumers - 1) / (64 * tile.consumers));
  params.tiles = static_cast<int>(tiles_of(p, tile));
  const int heads = static_cast<int>(p.batch * p.heads);
  if (!tile.masked) {
    order_tiles(params, heads, 1, heads);  // tiles alike: what reads the same K and V runs at the same time
  } else {
    // Heads whose K and V together fit half of a 60 MB L2, and for the end as many as fill two waves.
    int section = 1;
    while (section * 2 * 4 * p.seq_k * p.head_dim <= (std::int64_t{32} << 20) && section * 2 <= heads) section *= 2;
    const int last = 2 * (multiprocessors + params.tiles_m - 1) / params.tiles_m;
    order_tiles(params, heads, section, std::max(0, heads - last) / section * section);
  }
  plan.grid = std::min(multiprocessors, params.tiles);
  return plan;
}

}  // namespace attnbench::kernels::hopper
