// The contract of what a transformer does beside products and attention: norms, rotary embedding, gating, tables, loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bench/base/error.hpp"
#include "kernels/device/device.hpp"
#include "kernels/dtype.hpp"

namespace attnbench::kernels {

/// A gradient of parameters: fp32 or the dtype of the call; assigned, or added where `accumulate` is set.
struct GradOut {
  void* data = nullptr;
  Dtype dtype = Dtype::kFp32;
  bool accumulate = false;
};

/// y = x / sqrt(mean(x^2) + eps) * gain, row by row.
///
/// Shapes  x, y [rows, width]   gain [width]   inverse [rows] fp32, written: 1 / sqrt(mean(x^2) + eps)
struct RmsNorm {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, width = 0;
  float eps = 1e-5f;
  const void* x = nullptr;
  const void* gain = nullptr;
  void* y = nullptr;
  float* inverse = nullptr;
};

/// dx = addend + the norm's gradient; dgain = sum over rows of dy x inverse.
///
/// Shapes  x, dy, addend, dx [rows, width]   gain, dgain [width]   inverse [rows], as RmsNorm wrote it
/// Needs   addend may be null (zero) or dx itself; dgain.data may be null; scratch of rms_norm_scratch_bytes
struct RmsNormBackward {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, width = 0;
  const void* x = nullptr;
  const void* gain = nullptr;
  const float* inverse = nullptr;
  const void* dy = nullptr;
  const void* addend = nullptr;
  void* dx = nullptr;
  GradOut dgain;
  void* scratch = nullptr;
};

/// Rotates the pairs (2i, 2i + 1) of each head, in place, by position * theta^(-2i / head_dim): by minus that where
/// `inverse` is set, which is also the gradient. `x` points at the first of `heads` neighbouring heads.
///
/// Shapes  x [batch, seq, heads, head_dim], `stride` elements from position to position; head_dim even, at most 1024
struct Rotary {
  Dtype dtype = Dtype::kFp32;
  std::int64_t batch = 0, seq = 0, heads = 0, head_dim = 0;
  std::int64_t stride = 0;
  double theta = 10000.0;
  bool inverse = false;
  void* x = nullptr;
};

/// act = silu(gate) * up, where silu(z) = z / (1 + e^-z).
///
/// Shapes  gate_up [rows, 2 width]: gate, then up   act [rows, width]
struct SwiGlu {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, width = 0;
  const void* gate_up = nullptr;
  void* act = nullptr;
};

/// In place: gate_up becomes its gradient, and dact becomes act (which the weight gradient behind it reads).
struct SwiGluBackward {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, width = 0;
  void* gate_up = nullptr;
  void* dact = nullptr;
};

/// out[t] = table[ids[t]]. Errors  kFailed: an id outside [0, vocab); on a GPU its row is NaN, and a later call fails
struct Embedding {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, vocab = 0, width = 0;
  const std::int32_t* ids = nullptr;
  const void* table = nullptr;
  void* out = nullptr;
};

/// dtable[v] = sum of dout[t] over the t with ids[t] = v, in the order of t, in fp32.
struct EmbeddingBackward {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, vocab = 0, width = 0;
  const std::int32_t* ids = nullptr;
  const void* dout = nullptr;
  GradOut dtable;
  void* scratch = nullptr;  // embedding_scratch_bytes
};

/// loss = mean over rows of lse - logits[target]; lse = log(sum of exp(logits)), natural.
///
/// Shapes  logits [rows, vocab]   targets [rows]   lse [rows]   loss [1]
/// Errors  kFailed: a target outside [0, vocab); on a GPU the loss is NaN, and a later call fails
struct CrossEntropy {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, vocab = 0;
  const void* logits = nullptr;
  const std::int32_t* targets = nullptr;
  float* lse = nullptr;
  float* loss = nullptr;
};

/// In place: logits become scale / rows * (softmax - one at the target), the gradient of scale * loss.
struct CrossEntropyBackward {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, vocab = 0;
  void* logits = nullptr;
  const std::int32_t* targets = nullptr;
  const float* lse = nullptr;
  float scale = 1.0f;
};

/// y = max(x, 0); backward: dx = dy where x > 0, else 0.
struct Relu {
  Dtype dtype = Dtype::kFp32;
  std::int64_t elements = 0;
  const void* x = nullptr;
  void* y = nullptr;
};
struct ReluBackward {
  Dtype dtype = Dtype::kFp32;
  std::int64_t elements = 0;
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
};

/// The operations of one device; all in fp32 inside, rounded once on the way out, and in an order that depends on the
/// shapes alone. Enqueues (CUDA) or runs (CPU); allocates nothing.
class LayerOps {
 public:
  virtual ~LayerOps() = default;
  virtual std::size_t rms_norm_scratch_bytes(std::int64_t rows, std::int64_t width) const = 0;
  virtual std::size_t embedding_scratch_bytes(std::int64_t rows, std::int64_t vocab) const = 0;

  virtual base::Result<void> run(const RmsNorm& call) = 0;
  virtual base::Result<void> run(const RmsNormBackward& call) = 0;
  virtual base::Result<void> run(const Rotary& call) = 0;
  virtual base::Result<void> run(const SwiGlu& call) = 0;
  virtual base::Result<void> run(const SwiGluBackward& call) = 0;
  virtual base::Result<void> run(const Embedding& call) = 0;
  virtual base::Result<void> run(const EmbeddingBackward& call) = 0;
  virtual base::Result<void> run(const CrossEntropy& call) = 0;
  virtual base::Result<void> run(const CrossEntropyBackward& call) = 0;
  virtual base::Result<void> run(const Relu& call) = 0;
  virtual base::Result<void> run(const ReluBackward& call) = 0;
};

}  // namespace attnbench::kernels
