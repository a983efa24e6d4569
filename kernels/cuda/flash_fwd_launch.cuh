// Instantiation of the forward kernel for one head dimension: every element kind times every variant of the table.
#pragma once

#include "kernels/cuda/flash_fwd.cuh"
#include "kernels/cuda/flash_launch.cuh"

namespace attnbench::kernels::flash_cuda {

template <typename E, int D, int P, int kVariant>
cudaError_t launch_forward_variant(const FwdParams& params, cudaStream_t stream) {
  constexpr FwdConfig config = fwd_config(D, P, kVariant);
  using T = FwdTile<E, D, P, config>;
  FwdParams ordered = params;
  ordered.order.tiles = (params.shape.seq_q + config.rows() - 1) / config.rows();
  const std::int64_t blocks = ordered.order.tiles * ordered.order.heads;
  if (blocks <= ordered.order.fold || blocks > 2 * ordered.order.fold) ordered.order.fold = 0;
  return launch_tiles(&flash_forward<T>, ordered, blocks, config.threads(), fwd_shared_bytes(D, P, config), stream);
}

template <typename E, int D, int P>
cudaError_t launch_forward_kind(const FwdParams& params, int variant, cudaStream_t stream) {
  static_assert(kFwdVariants == 4);
  if (variant == 0) return launch_forward_variant<E, D, P, 0>(params, stream);
  if (variant == 1) return launch_forward_variant<E, D, P, 1>(params, stream);
  if (variant == 2) return launch_forward_variant<E, D, P, 2>(params, stream);
  return launch_forward_variant<E, D, P, 3>(params, stream);
}

template <int D>
cudaError_t launch_forward(const FwdParams& params, Kind kind, int variant, cudaStream_t stream) {
  if (kind == Kind::kBf16) return launch_forward_kind<Bf16Element, D, 1>(params, variant, stream);
  if (kind == Kind::kFp16) return launch_forward_kind<Fp16Element, D, 1>(params, variant, stream);
  return launch_forward_kind<Bf16Element, D, 2>(params, variant, stream);
}

}  // namespace attnbench::kernels::flash_cuda
