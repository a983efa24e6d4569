// Launchers of the layer operations: everything of a call is checked before.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/layer_ops.hpp"

namespace attnbench::kernels {

/// The first id outside its vocabulary, written by kernels into host memory that they see; vocab 0: none.
struct IdFault {
  int id = 0;
  int position = 0;
  int vocab = 0;
  int target = 0;  // a target of the loss, else a token
};

/// Rows of a norm's gain gradient that are summed apart: partial sums are [gain_parts, width].
std::int64_t gain_parts(std::int64_t rows);

cudaError_t launch(const RmsNorm& call, cudaStream_t stream);
cudaError_t launch(const RmsNormBackward& call, cudaStream_t stream);
cudaError_t launch(const Rotary& call, cudaStream_t stream);
cudaError_t launch(const SwiGlu& call, cudaStream_t stream);
cudaError_t launch(const SwiGluBackward& call, cudaStream_t stream);
cudaError_t launch(const Relu& call, cudaStream_t stream);
cudaError_t launch(const ReluBackward& call, cudaStream_t stream);
/// A row of an id outside the vocabulary becomes NaN, and `fault` says which.
cudaError_t launch(const Embedding& call, IdFault* fault, cudaStream_t stream);
cudaError_t launch(const CrossEntropy& call, IdFault* fault, cudaStream_t stream);
cudaError_t launch(const CrossEntropyBackward& call, cudaStream_t stream);

std::size_t embedding_sort_bytes(std::int64_t rows, std::int64_t vocab);
cudaError_t launch(const EmbeddingBackward& call, cudaStream_t stream);

}  // namespace attnbench::kernels
