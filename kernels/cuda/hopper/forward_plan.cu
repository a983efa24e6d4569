// Tensor maps and parameters of the Hopper forward.
#include <algorithm>

#include "kernels/cuda/hopper/forward_plan.cuh"

namespace attnbench::kernels::hopper {
namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTiled>(entry) : nullptr;
  }();
  return function;
}

bool engine_takes(const Tensor& t) {
  if (reinterpret_cast<std::uintptr_t>(t.data) % 16 != 0 || t.stride[3] != 1) return false;
  for (int i = 0; i < 3; ++i) {
    if (t.extent[i] > 1 && (t.stride[i] <= 0 || t.stride[i] % 8 != 0)) return false;
  }
  return true;
}

/// Boxes of `rows` x `columns` elements, swizzled over a row's width, of a [B, H, S, D] tensor; what lies outside
/// arrives as zeros.
bool make_map(CUtensorMap& map, const Tensor& t, int rows, int columns) {
  cuuint64_t extent[4], stride[3];
  for (int i = 0; i < 4; ++i) extent[i] = static_cast<cuuint64_t>(t.extent[3 - i]);
  for (int i = 0; i < 3; ++i) {
    // A stride of an extent of one is never used, but must be valid.
    stride[i] = t.extent[2 - i] > 1 ? static_cast<cuuint64_t>(t.stride[2 - i]) * 2 : 16;
  }
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(columns), static_cast<cuuint32_t>(rows), 1, 1};
  const cuuint32_t step[4] = {1, 1, 1, 1};
  const auto type = t.dtype == Dtype::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto swizzle = columns == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                       : columns == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                       : CU_TENSOR_MAP_SWIZZLE_32B;
  return encode_tiled()(&map, type, 4, t.data, extent, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

Rows rows_of(const Tensor& t) { return {t.data, t.stride[0], t.stride[1], t.stride[2]}; }

}  // namespace

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
  return encode_tiled() != nullptr && engine_takes(args.q) && engine_takes(args.k) && engine_takes(args.v) &&
         engine_takes(args.o);
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
  if (!make_map(plan.q, args.q, 64 * tile.consumers, columns) || !make_map(plan.k, args.k, tile.tile_n, columns) ||
      !make_map(plan.v, args.v, tile.tile_n, columns) || !make_map(plan.o, args.o, 16, columns)) {
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
  params.scale = p.scale;
  params.scale_log2 = p.scale * 1.4426950408889634f;
  params.lse = args.lse;
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
