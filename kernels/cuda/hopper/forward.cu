// flash:wgmma, forward attention with Hopper's own instructions, as the catalog sees it.
//
// Offered where every query sees every key: a key hidden from part of a tile has weight zero there, and zero times a
// stored NaN or infinity would reach rows that must not see it. The portable kernel guards such tiles and takes them.
#include <string>

#include "kernels/cuda/flash.hpp"
#include "kernels/cuda/hopper/forward_kernel.cuh"
#include "kernels/device/cuda_error.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using hopper::ForwardParams;

/// Row of the tile table.
struct TileChoice {
  int head_dim, consumers, tile_n, stages, query_stages;
  std::int64_t keys_from;  // shortest seq_k it is for
};

using AllowForward = cudaError_t (*)();
using LaunchForward = cudaError_t (*)(const CUtensorMap&, const CUtensorMap&, const CUtensorMap&, const ForwardParams&,
                                      int grid, cudaStream_t stream);

/// One instance of the kernel. `allow` lets it have its shared memory on the current device, before the first launch.
template <typename T, int kHeadDim, int kConsumers, int kTileN, int kStages, int kQueryStages>
struct Forward {
  using Shape = hopper::ForwardShape<kHeadDim, kConsumers, kTileN, kStages, kQueryStages>;
  static_assert(Shape::kSharedBytes <= 232448, "a block has 227 KiB of shared memory");

  static cudaError_t allow() {
    return cudaFuncSetAttribute(hopper::forward_kernel<T, kHeadDim, kConsumers, kTileN, kStages, kQueryStages>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
  }
  static cudaError_t launch(const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v,
                            const ForwardParams& params, int grid, cudaStream_t stream) {
    hopper::forward_kernel<T, kHeadDim, kConsumers, kTileN, kStages, kQueryStages>
        <<<grid, Shape::kThreads, Shape::kSharedBytes, stream>>>(q, k, v, params);
    return cudaGetLastError();
  }
};

struct Entry {
  AllowForward allow;
  LaunchForward launch;
};

struct Instance {
  TileChoice tile;
  Entry bf16, fp16;
};

template <int kHeadDim, int kConsumers, int kTileN, int kStages, int kQueryStages>
constexpr Instance instance(std::int64_t keys_from) {
  using Bf16Forward = Forward<__nv_bfloat16, kHeadDim, kConsumers, kTileN, kStages, kQueryStages>;
  using Fp16Forward = Forward<__half, kHeadDim, kConsumers, kTileN, kStages, kQueryStages>;
  return {{kHeadDim, kConsumers, kTileN, kStages, kQueryStages, keys_from},
          {&Bf16Forward::allow, &Bf16Forward::launch},
          {&Fp16Forward::allow, &Fp16Forward::launch}};
}

// The last row that fits is taken. Three consumers pay once a tile has enough key blocks to keep them apart.
constexpr Instance kInstances[] = {
    instance<64, 2, 128, 3, 2>(0),
    instance<64, 3, 128, 2, 2>(2048),
    instance<128, 2, 128, 2, 2>(0),
#ifndef ATTNBENCH_KERNEL_SET_CI
    instance<256, 2, 80, 2, 1>(0),
#endif
};

const Instance* choose(const Problem& p) {
  const Instance* chosen = nullptr;
  for (const Instance& row : kInstances) {
    if (row.tile.head_dim == p.head_dim && p.seq_k >= row.tile.keys_from) chosen = &row;
  }
  return chosen;
}

std::int64_t tiles_of(const Problem& p, const TileChoice& tile) {
  const std::int64_t tile_m = 64 * tile.consumers;
  return (p.seq_q + tile_m - 1) / tile_m * p.batch * p.heads;
}

std::optional<std::string> supports(const Problem& p, Pass pass, const Target& target) {
  if (target.device->compute_capability != 90) return "flash:wgmma runs on compute capability 9.0 only; use flash:mma";
  if (pass != Pass::kFwd) return "flash:wgmma has no backward; use flash:mma";
  if (p.dtype == Dtype::kFp32) return "flash:wgmma takes bf16 and fp16, not fp32; use flash:mma";
  if (p.causal || p.window_left >= 0) return "flash:wgmma takes neither causal nor window; use flash:mma";
  const Instance* row = choose(p);
  if (row == nullptr) {
    return "flash:wgmma has no tile for head_dim " + std::to_string(p.head_dim) + "; use flash:mma";
  }
  if (!(p.scale > 0.f)) return "flash:wgmma needs a positive scale; use flash:mma";
  constexpr std::int64_t kMost = 1 << 30;
  if (p.batch * p.heads * p.seq_q * p.seq_k == 0 || p.seq_q > kMost || p.seq_k > kMost ||
      tiles_of(p, row->tile) > kMost) {
    return "flash:wgmma takes neither empty tensors nor 2^30 tiles or more; use flash:mma";
  }
  return cuda_flash().supports(p, pass, target);
}

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

/// The copy engine wants rows of 16-byte units at 16-byte aligned places.
bool engine_takes(const Tensor& t) {
  if (reinterpret_cast<std::uintptr_t>(t.data) % 16 != 0 || t.stride[3] != 1) return false;
  for (int i = 0; i < 3; ++i) {
    if (t.extent[i] > 1 && (t.stride[i] <= 0 || t.stride[i] % 8 != 0)) return false;
  }
  return true;
}

/// Boxes of `rows` x 64 elements (128 bytes, swizzled) of a [B, H, S, D] tensor; rows outside arrive as zeros.
bool make_map(CUtensorMap& map, const Tensor& t, int rows) {
  cuuint64_t extent[4], stride[3];
  for (int i = 0; i < 4; ++i) extent[i] = static_cast<cuuint64_t>(t.extent[3 - i]);
  for (int i = 0; i < 3; ++i) {
    // A stride of an extent of one is never used, but must be valid.
    stride[i] = t.extent[2 - i] > 1 ? static_cast<cuuint64_t>(t.stride[2 - i]) * 2 : 16;
  }
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(rows), 1, 1};
  const cuuint32_t step[4] = {1, 1, 1, 1};
  const auto type = t.dtype == Dtype::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode_tiled()(&map, type, 4, t.data, extent, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

class WgmmaForward : public PreparedKernel {
 public:
  WgmmaForward(const Instance& row, Dtype dtype, cudaStream_t stream, Buffer counters)
      : entry_(dtype == Dtype::kBf16 ? row.bf16 : row.fp16), stream_(stream), counters_(std::move(counters)) {}

  Result<void> bind(const AttentionArgs& args, const TileChoice& tile, int multiprocessors) {
    const Problem& p = args.problem;
    if (auto ok = check_cuda(entry_.allow(), "giving flash:wgmma its shared memory"); !ok) return ok;
    if (!make_map(map_q_, args.q, 64 * tile.consumers) || !make_map(map_k_, args.k, tile.tile_n) ||
        !make_map(map_v_, args.v, tile.tile_n)) {
      return fail(ErrorKind::kFailed, "flash:wgmma: the driver declines a tensor map of these strides; use flash:mma");
    }
    params_.batch = static_cast<int>(p.batch);
    params_.heads = static_cast<int>(p.heads);
    params_.kv_heads = static_cast<int>(p.kv_heads);
    params_.seq_q = static_cast<int>(p.seq_q);
    params_.seq_k = static_cast<int>(p.seq_k);
    params_.scale = p.scale;
    params_.scale_log2 = p.scale * 1.4426950408889634f;
    params_.lse = args.lse;
    params_.out = args.o.data;
    params_.out_stride_b = args.o.stride[0];
    params_.out_stride_h = args.o.stride[1];
    params_.out_stride_s = args.o.stride[2];
    params_.counters = static_cast<int*>(counters_.data());
    params_.tiles_m = static_cast<int>((p.seq_q + 64 * tile.consumers - 1) / (64 * tile.consumers));
    params_.tiles = static_cast<int>(tiles_of(p, tile));
    // Heads whose K and V together fit half of a 60 MB L2 are worked on at the same time.
    const std::int64_t head_bytes = 4 * p.seq_k * p.head_dim;
    std::int64_t section = 1;
    while (section * 2 * head_bytes <= (std::int64_t{32} << 20) && section * 2 <= p.batch * p.heads) section *= 2;
    params_.section = static_cast<int>(section);
    grid_ = std::min(multiprocessors, params_.tiles);
    return {};
  }

  Result<void> launch(Pass pass) override {
    if (pass != Pass::kFwd) return fail(ErrorKind::kUnsupported, "flash:wgmma has no backward; use flash:mma");
    return check_cuda(entry_.launch(map_q_, map_k_, map_v_, params_, grid_, stream_), "launching flash:wgmma");
  }

  std::string variant() const override { return "wgmma"; }

 private:
  Entry entry_;
  cudaStream_t stream_;
  Buffer counters_;
  CUtensorMap map_q_, map_k_, map_v_;
  ForwardParams params_{};
  int grid_ = 0;
};

Result<std::unique_ptr<PreparedKernel>> prepare_wgmma(const AttentionArgs& args, Device& device) {
  const Instance* row = choose(args.problem);
  // Strides that the copy engine does not take: the portable kernel runs, and the row says so.
  if (!engine_takes(args.q) || !engine_takes(args.k) || !engine_takes(args.v) || !engine_takes(args.o) ||
      encode_tiled() == nullptr) {
    return cuda_flash().prepare(args, device);
  }
  auto counters = device.allocate(2 * sizeof(int));
  if (!counters) return tl::unexpected(counters.error());
  if (auto ok = device.fill_bytes(counters->data(), 0, 2 * sizeof(int)); !ok) return tl::unexpected(ok.error());
  auto made = std::make_unique<WgmmaForward>(*row, args.problem.dtype, static_cast<cudaStream_t>(device.stream()),
                                             std::move(*counters));
  if (auto ok = made->bind(args, row->tile, device.facts().cores); !ok) return tl::unexpected(ok.error());
  return std::unique_ptr<PreparedKernel>(std::move(made));
}

}  // namespace

/// Forward attention by wgmma, fed by the copy engine. There is no backward: that pass is flash:mma's.
///
/// Shapes  q [B, H, Sq, D]   k, v [B, Hkv, Sk, D]   out [B, H, Sq, D]   lse [B, H, Sq], natural log
/// Needs   compute capability 9.0; bf16 or fp16; D in {64, 128, 256}; no causal, no window; scale > 0
/// Memory  8 bytes of counters
/// Errors  launch errors only; P is rounded to 16 bits, see tolerance()
/// Source  Shah et al. 2024, arXiv:2407.08608; Milakov & Gimelshein 2018, section 3
const KernelInfo& cuda_flash_wgmma_forward() {
  static const KernelInfo info = [] {
    KernelInfo wgmma = cuda_flash();
    wgmma.variant = "wgmma";
    wgmma.summary = "forward without mask by wgmma, fed by the copy engine, persistent blocks";
    wgmma.source = "Shah et al. 2024, arXiv:2407.08608";
    wgmma.supports = &supports;
    wgmma.prepare = &prepare_wgmma;
    return wgmma;
  }();
  return info;
}

}  // namespace attnbench::kernels
