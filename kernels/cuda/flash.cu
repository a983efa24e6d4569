// The flash kernel as the harness sees it: what it supports, what it needs, and the order of its launches.
//
// Forward: (pack,) forward. Backward: prepare (pack, delta, zeroed dQ sum), dK/dV with dQ added up in fp32, convert;
// or, deterministic, prepare, dK/dV, dQ in a pass of its own. Packing happens for fp32 (split in two bf16 planes, three
// products each), for head dimensions that are no multiple of 8, and for strides that rule out 16-byte loads.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "kernels/cuda/flash.hpp"
#include "kernels/cuda/flash_launch.cuh"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
namespace fc = flash_cuda;

#ifdef ATTNBENCH_KERNEL_SET_CI
constexpr std::array<int, 2> kWidths{64, 128};
#else
constexpr std::array<int, 7> kWidths{16, 32, 64, 96, 128, 192, 256};
#endif

/// Smallest instance that holds the head dimension; 0: none.
int width_of(std::int64_t head_dim) {
  for (const int width : kWidths) {
    if (head_dim <= width) return width;
  }
  return 0;
}

template <typename F>
cudaError_t with_width(int width, F&& call) {
  switch (width) {
#ifndef ATTNBENCH_KERNEL_SET_CI
    case 16:
      return call(std::integral_constant<int, 16>{});
    case 32:
      return call(std::integral_constant<int, 32>{});
    case 96:
      return call(std::integral_constant<int, 96>{});
    case 192:
      return call(std::integral_constant<int, 192>{});
    case 256:
      return call(std::integral_constant<int, 256>{});
#endif
    case 64:
      return call(std::integral_constant<int, 64>{});
    case 128:
      return call(std::integral_constant<int, 128>{});
    default:
      return cudaErrorInvalidValue;
  }
}

fc::Kind kind_of(Dtype dtype) {
  return dtype == Dtype::kFp32 ? fc::Kind::kSplit : (dtype == Dtype::kBf16 ? fc::Kind::kBf16 : fc::Kind::kFp16);
}

fc::Storage storage_of(Dtype dtype) {
  return dtype == Dtype::kFp32 ? fc::Storage::kFp32 : (dtype == Dtype::kBf16 ? fc::Storage::kBf16 : fc::Storage::kFp16);
}

std::int64_t packed_dim(std::int64_t head_dim) { return (head_dim + 7) / 8 * 8; }

std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t packed_bytes(const Problem& p, std::int64_t heads, std::int64_t seq) {
  const std::int64_t elements = p.batch * heads * seq * packed_dim(p.head_dim);
  return aligned(static_cast<std::size_t>(elements * 2 * fc::planes_of(kind_of(p.dtype))));
}

/// Dense tensors go to the tiles as they are unless this holds.
bool always_packed(const Problem& p) { return p.dtype == Dtype::kFp32 || p.head_dim % 8 != 0; }

bool needs_packing(const Problem& p, const Tensor& t) {
  if (always_packed(p) || t.stride[3] != 1) return true;
  if (reinterpret_cast<std::uintptr_t>(t.data) % 16 != 0) return true;
  for (std::size_t i = 0; i < 3; ++i) {
    if (t.extent[i] > 1 && t.stride[i] % 8 != 0) return true;
  }
  return false;
}

/// Shared memory one block may have, by compute capability.
int shared_limit(int compute_capability) {
  switch (compute_capability) {
    case 80:
    case 87:
      return 163 * 1024;
    case 90:
    case 100:
    case 103:
      return 227 * 1024;
    default:
      return 99 * 1024;
  }
}

int shared_needed(const Problem& p, Pass pass) {
  const int d = width_of(p.head_dim);
  const int planes = fc::planes_of(kind_of(p.dtype));
  int bytes = 0;
  if (pass != Pass::kBwd) {
    for (int v = 0; v < fc::kFwdVariants; ++v) {
      bytes = std::max(bytes, fc::fwd_shared_bytes(d, planes, fc::fwd_config(d, planes, v)));
    }
  }
  if (pass != Pass::kFwd) {
    for (int v = 0; v < fc::kBwdKvVariants; ++v) {
      bytes = std::max(bytes, fc::bwd_kv_shared_bytes(d, planes, fc::bwd_kv_config(d, planes, v)));
    }
    bytes = std::max(bytes, fc::bwd_q_shared_bytes(d, planes, fc::bwd_q_config(d, planes)));
  }
  return bytes;
}

std::optional<std::string> supports(const Problem& p, Pass pass, const Target& target) {
  if (width_of(p.head_dim) == 0) {
    return "flash has tiles for head_dim up to " + std::to_string(kWidths.back()) + ", not " +
           std::to_string(p.head_dim);
  }
  constexpr std::int64_t kMaxLength = std::int64_t{1} << 30;
  if (p.seq_q > kMaxLength || p.seq_k > kMaxLength) return "flash counts positions up to 2^30";
  constexpr std::int64_t kMaxTiles = std::numeric_limits<std::int32_t>::max();
  const std::int64_t tiles = p.batch * p.heads * ((std::max(p.seq_q, p.seq_k) + 63) / 64);
  if (tiles > kMaxTiles) {
    return "flash starts one block per 64 rows and head, at most 2^31 - 1; batch * heads * length asks for " +
           std::to_string(tiles);
  }
  if (target.device != nullptr && target.device->compute_capability != 0) {
    const int limit = shared_limit(target.device->compute_capability);
    const int needed = shared_needed(p, pass);
    if (target.device->compute_capability < 80) return "flash needs compute capability 8.0 or later";
    if (needed > limit) {
      return "flash at head_dim " + std::to_string(p.head_dim) + " needs " + std::to_string(needed) +
             " bytes of shared memory per block, the device has " + std::to_string(limit);
    }
  }
  return std::nullopt;
}

/// Where each scratch array starts in the workspace of a pass.
struct Layout {
  std::size_t q = 0, k = 0, v = 0, dout = 0, stats = 0, dq_sum = 0, end = 0;
};

Layout layout_of(const Problem& p, Pass pass, bool deterministic, bool pack) {
  Layout at;
  std::size_t end = 0;
  const auto take = [&](std::size_t bytes) {
    const std::size_t start = end;
    end += aligned(bytes);
    return start;
  };
  if (pack) {
    at.q = take(packed_bytes(p, p.heads, p.seq_q));
    at.k = take(packed_bytes(p, p.kv_heads, p.seq_k));
    at.v = take(packed_bytes(p, p.kv_heads, p.seq_k));
    if (pass == Pass::kBwd) at.dout = take(packed_bytes(p, p.heads, p.seq_q));
  }
  if (pass == Pass::kBwd) {
    const std::size_t rows = static_cast<std::size_t>(p.batch * p.heads * p.seq_q);
    at.stats = take(rows * sizeof(float2));
    if (!deterministic) at.dq_sum = take(rows * static_cast<std::size_t>(width_of(p.head_dim)) * sizeof(float));
  }
  at.end = end;
  return at;
}

Footprint footprint(const Problem& p, Pass pass, const Target& target) {
  std::size_t bytes = 0;
  if (pass != Pass::kBwd) bytes = layout_of(p, Pass::kFwd, false, always_packed(p)).end;
  if (pass != Pass::kFwd) {
    bytes = std::max(bytes, layout_of(p, Pass::kBwd, target.deterministic, always_packed(p)).end);
  }
  // Two floats a row go from the forward to the backward: lse alone is too coarse where logits are large.
  const std::size_t rows = static_cast<std::size_t>(p.batch * p.heads * p.seq_q);
  return {bytes, pass == Pass::kFwd ? 0 : rows * sizeof(float2)};
}

Tolerance tolerance(const Problem& p) {
  // Two bf16 planes keep 2^-18 of each factor; logits of N(0, 1) inputs then err by about 1e-5.
  if (p.dtype == Dtype::kFp32) return {5e-5, 5e-5};
  return default_tolerance(p);
}

fc::Output output_of(const Tensor& t) {
  fc::Output out{t.data, t.stride[0], t.stride[1], t.stride[2], t.stride[3], false};
  const std::size_t pair = 2 * size_of(t.dtype);
  out.pairs = t.stride[3] == 1 && reinterpret_cast<std::uintptr_t>(t.data) % pair == 0;
  for (std::size_t i = 0; i < 3; ++i) out.pairs = out.pairs && (t.extent[i] <= 1 || t.stride[i] % 2 == 0);
  return out;
}

/// Heads per section: as many as keep `bytes_per_head` of re-read data within about half of an L2 cache.
int section_of(std::int64_t heads, std::int64_t bytes_per_head) {
  constexpr std::int64_t kBudget = std::int64_t{24} << 20;
  const std::int64_t fit = kBudget / std::max<std::int64_t>(bytes_per_head, 1);
  return static_cast<int>(std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(heads, 1)));
}

class FlashKernel : public PreparedKernel {
 public:
  FlashKernel(const AttentionArgs& args, Device& device, const FlashTuning& tuning, Buffer pack, bool packs)
      : args_(args),
        stream_(static_cast<cudaStream_t>(device.stream())),
        pack_(std::move(pack)),
        packs_(packs),
        width_(width_of(args.problem.head_dim)),
        kind_(kind_of(args.problem.dtype)) {
    const Problem& p = args.problem;
    const int planes = fc::planes_of(kind_);
    const int processors = device.facts().cores;
    forward_variant_ = tuning.forward_variant >= 0
                           ? tuning.forward_variant
                           : fc::choose_fwd_variant(width_, planes, p.batch * p.heads, p.seq_q, processors);
    backward_variant_ = tuning.backward_variant >= 0
                            ? tuning.backward_variant
                            : fc::choose_bwd_kv_variant(width_, planes, p.batch * p.kv_heads, p.seq_k, processors);
    shape_ = shape();
    fold_ = tuning.fold && p.causal ? processors : 0;
  }

  Result<void> launch(Pass pass) override {
    const cudaError_t error = pass == Pass::kFwd ? forward() : backward();
    if (error == cudaSuccess) return {};
    return fail(ErrorKind::kFailed, std::string("flash: ") + cudaGetErrorString(error));
  }

  std::string variant() const override { return args_.problem.dtype == Dtype::kFp32 ? "mma+bf16x3" : "mma"; }

 private:
  fc::Shape shape() const {
    const Problem& p = args_.problem;
    fc::Shape shape;
    shape.heads = static_cast<int>(p.heads);
    shape.group = p.kv_heads > 0 ? static_cast<int>(p.heads / p.kv_heads) : 1;
    shape.seq_q = static_cast<int>(p.seq_q);
    shape.seq_k = static_cast<int>(p.seq_k);
    shape.head_dim = static_cast<int>(p.head_dim);
    shape.causal = p.causal ? 1 : 0;
    // A window longer than both sequences sees everything; capped so that sums of positions stay in 32 bits.
    shape.window = p.window_left < 0 ? -1 : static_cast<int>(std::min(p.window_left, p.seq_q + p.seq_k));
    if (p.window_left > p.seq_q + p.seq_k) shape.window = -1;
    shape.scale = p.scale;
    shape.scale_log2 = std::max(std::abs(p.scale) * 1.4426950408889634f, 1e-37f);
    shape.negative = p.scale < 0.0f ? 1 : 0;
    return shape;
  }

  char* workspace(std::size_t at) const {
    char* base = static_cast<char*>(pack_ ? pack_.data() : args_.workspace);
    return base + at;
  }

  /// The tensor as the tiles load it; adds the job that brings it there if it needs one.
  fc::Input input(const Tensor& t, std::size_t at, fc::PrepareParams& prepare) const {
    if (!needs_packing(args_.problem, t)) return {t.data, t.stride[0], t.stride[1], t.stride[2], 0};
    const std::int64_t d = packed_dim(args_.problem.head_dim);
    fc::PackJob& job = prepare.pack[prepare.packs++];
    job = {t.data,
           t.stride[0],
           t.stride[1],
           t.stride[2],
           t.stride[3],
           workspace(at),
           t.extent[0] * t.extent[1] * t.extent[2],
           static_cast<int>(t.extent[1]),
           static_cast<int>(t.extent[2]),
           t.extent[0] * t.extent[1] * t.extent[2] * d};
    return {job.target, t.extent[1] * t.extent[2] * d, t.extent[2] * d, d, job.plane};
  }

  fc::PrepareParams prepare_params() const {
    fc::PrepareParams prepare;
    prepare.head_dim = shape_.head_dim;
    prepare.packed_dim = static_cast<int>(packed_dim(shape_.head_dim));
    return prepare;
  }

  /// What both passes read.
  template <typename Params>
  void read_inputs(Params& params, const Layout& at, fc::PrepareParams& prepare) const {
    params.shape = shape_;
    params.q = input(args_.q, at.q, prepare);
    params.k = input(args_.k, at.k, prepare);
    params.v = input(args_.v, at.v, prepare);
  }

  cudaError_t forward() const {
    const Problem& p = args_.problem;
    const Layout at = layout_of(p, Pass::kFwd, args_.deterministic, packs_);
    fc::PrepareParams prepare = prepare_params();
    fc::FwdParams params;
    read_inputs(params, at, prepare);
    params.o = output_of(args_.o);
    params.lse = args_.lse;
    params.order.fold = fold_;
    params.saved = static_cast<float2*>(args_.saved);
    params.order.heads = p.batch * p.heads;
    params.order.section = section_of(params.order.heads, 4 * fc::planes_of(kind_) * p.seq_k * width_ / shape_.group);
    if (prepare.packs > 0) {
      const cudaError_t error = fc::launch_prepare(prepare, storage_of(p.dtype), stream_);
      if (error != cudaSuccess) return error;
    }
    return with_width(
        width_, [&](auto width) { return fc::launch_forward<width.value>(params, kind_, forward_variant_, stream_); });
  }

  cudaError_t backward() const {
    const Problem& p = args_.problem;
    const Layout at = layout_of(p, Pass::kBwd, args_.deterministic, packs_);
    fc::PrepareParams prepare = prepare_params();
    fc::BwdParams params;
    read_inputs(params, at, prepare);
    params.dout = input(args_.dout, at.dout, prepare);
    params.dq = output_of(args_.dq);
    params.dk = output_of(args_.dk);
    params.dv = output_of(args_.dv);
    float2* stats = reinterpret_cast<float2*>(workspace(at.stats));
    params.stats = stats;
    params.saved = static_cast<const float2*>(args_.saved);
    params.dq_sum = args_.deterministic ? nullptr : reinterpret_cast<float*>(workspace(at.dq_sum));
    fc::StatsJob& job = prepare.stats;
    job = {args_.o.data,
           args_.o.stride[0],
           args_.o.stride[1],
           args_.o.stride[2],
           args_.o.stride[3],
           args_.dout.data,
           args_.dout.stride[0],
           args_.dout.stride[1],
           args_.dout.stride[2],
           args_.dout.stride[3],
           args_.lse,
           params.saved,
           shape_.scale_log2,
           stats,
           params.dq_sum,
           width_,
           p.batch * p.heads * p.seq_q,
           shape_.heads,
           shape_.seq_q};
    cudaError_t error = fc::launch_prepare(prepare, storage_of(p.dtype), stream_);
    if (error != cudaSuccess) return error;
    params.order.heads = p.batch * p.kv_heads;
    params.order.section =
        section_of(params.order.heads, (4 * fc::planes_of(kind_) + 4) * p.seq_q * width_ * shape_.group);
    error = with_width(width_, [&](auto width) {
      return fc::launch_backward_kv<width.value>(params, kind_, backward_variant_, stream_);
    });
    if (error != cudaSuccess) return error;
    if (!args_.deterministic) {
      fc::ConvertParams convert{params.dq_sum, width_,       params.dq,       p.batch * p.heads * p.seq_q,
                                shape_.heads,  shape_.seq_q, shape_.head_dim, p.scale};
      return fc::launch_convert(convert, storage_of(p.dtype), stream_);
    }
    params.order.heads = p.batch * p.heads;
    params.order.section = section_of(params.order.heads, 4 * fc::planes_of(kind_) * p.seq_k * width_ / shape_.group);
    return with_width(width_,
                      [&](auto width) { return fc::launch_backward_q<width.value>(params, kind_, 0, stream_); });
  }

  AttentionArgs args_;
  cudaStream_t stream_ = nullptr;
  Buffer pack_;  // only where strides ask for packing that the footprint, which sees no strides, left out
  bool packs_ = false;
  int width_ = 0;
  fc::Kind kind_;
  int forward_variant_ = 0;
  int backward_variant_ = 0;
  int fold_ = 0;
  fc::Shape shape_;
};

Result<std::unique_ptr<PreparedKernel>> prepare_default(const AttentionArgs& args, Device& device) {
  return prepare_cuda_flash(args, device, {});
}

}  // namespace

Result<std::unique_ptr<PreparedKernel>> prepare_cuda_flash(const AttentionArgs& args, Device& device,
                                                           const FlashTuning& tuning) {
  const Problem& p = args.problem;
  const bool backward = args.dq.data != nullptr || args.dk.data != nullptr || args.dv.data != nullptr;
  bool packs = always_packed(p);
  Buffer own;
  const bool odd = needs_packing(p, args.q) || needs_packing(p, args.k) || needs_packing(p, args.v) ||
                   (backward && needs_packing(p, args.dout));
  if (!packs && odd) {
    packs = true;
    const std::size_t bytes = std::max(layout_of(p, Pass::kFwd, args.deterministic, true).end,
                                       layout_of(p, Pass::kBwd, args.deterministic, true).end);
    Result<Buffer> buffer = device.allocate(bytes);
    if (!buffer) return tl::unexpected<base::Error>(buffer.error());
    own = std::move(*buffer);
  }
  return std::make_unique<FlashKernel>(args, device, tuning, std::move(own), packs);
}

const KernelInfo& cuda_flash() {
  static const KernelInfo info = [] {
    KernelInfo flash;
    flash.name = "flash";
    flash.variant = "mma";
    flash.summary = "tiled, online softmax on tensor cores (mma.sync); fused backward, no Sq x Sk buffer";
    flash.source = "Dao et al. 2022, arXiv:2205.14135; Dao 2023, arXiv:2307.08691";
    flash.device = DeviceKind::kCuda;
    flash.materialises = false;
    flash.supports = &supports;
    flash.footprint = &footprint;
    flash.tolerance = &tolerance;
    flash.prepare = &prepare_default;
    return flash;
  }();
  return info;
}

}  // namespace attnbench::kernels
