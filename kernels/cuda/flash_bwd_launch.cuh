// Instantiation of the two backward kernels for one head dimension.
#pragma once

#include "kernels/cuda/flash_bwd_kv.cuh"
#include "kernels/cuda/flash_bwd_q.cuh"
#include "kernels/cuda/flash_launch.cuh"

namespace attnbench::kernels::flash_cuda {

template <typename E, int D, int P, int kVariant>
cudaError_t launch_backward_kv_variant(const BwdParams& params, cudaStream_t stream) {
  constexpr BwdKvConfig config = bwd_kv_config(D, P, kVariant);
  using T = BwdKvTile<E, D, P, config>;
  BwdParams ordered = params;
  ordered.order.tiles = (params.shape.seq_k + config.rows() - 1) / config.rows();
  return launch_tiles(&flash_backward_kv<T>, ordered, ordered.order.tiles * ordered.order.heads, config.threads(),
                      bwd_kv_shared_bytes(D, P, config), stream);
}

template <typename E, int D, int P>
cudaError_t launch_backward_kv_kind(const BwdParams& params, int variant, cudaStream_t stream) {
  static_assert(kBwdKvVariants == 2);
  if (variant == 0) return launch_backward_kv_variant<E, D, P, 0>(params, stream);
  return launch_backward_kv_variant<E, D, P, 1>(params, stream);
}

template <int D>
cudaError_t launch_backward_kv(const BwdParams& params, Kind kind, int variant, cudaStream_t stream) {
  if (kind == Kind::kBf16) return launch_backward_kv_kind<Bf16Element, D, 1>(params, variant, stream);
  if (kind == Kind::kFp16) return launch_backward_kv_kind<Fp16Element, D, 1>(params, variant, stream);
  return launch_backward_kv_kind<Bf16Element, D, 2>(params, variant, stream);
}

template <typename E, int D, int P>
cudaError_t launch_backward_q_kind(const BwdParams& params, cudaStream_t stream) {
  constexpr BwdQConfig config = bwd_q_config(D, P);
  using T = BwdQTile<E, D, P, config>;
  BwdParams ordered = params;
  ordered.order.tiles = (params.shape.seq_q + config.rows() - 1) / config.rows();
  return launch_tiles(&flash_backward_q<T>, ordered, ordered.order.tiles * ordered.order.heads, config.threads(),
                      bwd_q_shared_bytes(D, P, config), stream);
}

template <int D>
cudaError_t launch_backward_q(const BwdParams& params, Kind kind, int, cudaStream_t stream) {
  if (kind == Kind::kBf16) return launch_backward_q_kind<Bf16Element, D, 1>(params, stream);
  if (kind == Kind::kFp16) return launch_backward_q_kind<Fp16Element, D, 1>(params, stream);
  return launch_backward_q_kind<Bf16Element, D, 2>(params, stream);
}

}  // namespace attnbench::kernels::flash_cuda
