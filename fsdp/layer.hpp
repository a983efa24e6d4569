// The seam between the sharding engine and the model: what a layer needs in memory, and how it is run on memory that
// the engine owns. A layer has no parameters of its own and allocates nothing once it is bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/error.hpp"
#include "kernels/device/device.hpp"
#include "kernels/kernel.hpp"

namespace attnbench::fsdp {

using kernels::Device;
using kernels::Dtype;

/// One parameter tensor: dense, row-major. Names are unique in a model ("layers.0.attn.q_proj.weight").
struct ParamSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  bool frozen = false;       // no gradient is asked for: its GradTarget is null
  std::string tied_to = {};  // name of the parameter (of this or an earlier layer) whose values these are; no storage
  float init_mean = 0.0f;    // fresh models draw from a normal distribution: norms have mean 1 and deviation 0
  float init_std = 0.02f;

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) product *= extent;
    return product;
  }
};

/// What one rank runs at once: `batch` sequences of `seq` tokens.
struct TokenShape {
  std::int64_t batch = 1;
  std::int64_t seq = 1;
  std::int64_t tokens() const { return batch * seq; }
};

/// Element types and the one choice that trades memory for work.
struct Numerics {
  Dtype compute = Dtype::kFp32;   // parameters, activations and their gradients; sums are always kept in fp32
  Dtype gradient = Dtype::kFp32;  // gradients of parameters: fp32, or the same as `compute`
  bool checkpoint = false;        // layers that can keep only their input and repeat their forward in the backward
  bool deterministic = false;     // bitwise equal results over runs are asked for (the CPU's always are)
};

/// Bytes and work of one layer for one shape. A pure function of the layer, the shape and the numerics.
///
/// Memory  saved: per layer, written by forward, read (and overwritten) by its backward
///         workspace: undefined before and after every call, so that all layers of a rank may share one
struct LayerPlan {
  std::int64_t in_elements = 0;   // input activation, compute dtype; 0: the layer reads tokens
  std::int64_t out_elements = 0;  // output activation, compute dtype; 0: the layer ends in the loss
  std::size_t saved_bytes = 0;
  std::size_t workspace_bytes = 0;
  bool backward_reads_params = true;  // false (embedding): the backward needs no gather
  bool backward_reads_input = true;   // true: the engine keeps `in` (the layer before's `out`) until the backward
  double forward_flop = 0;            // model FLOP: what the mathematics asks for, recomputation not counted
  double backward_flop = 0;
};

/// Where one parameter's gradient goes. Null: not asked for (frozen). accumulate: added, else assigned.
struct GradTarget {
  void* data = nullptr;
  bool accumulate = false;
};

/// One forward. Device pointers; activations and parameters in the compute dtype, aligned to 64 bytes.
///
/// Shapes  in, out [batch, seq, width]   tokens, targets [batch, seq]   loss: one fp32
struct LayerForward {
  std::span<const void* const> params;    // one per ParamSpec, in order: views into the gathered buffer
  const void* in = nullptr;               // null for a layer that reads tokens
  void* out = nullptr;                    // null for the loss layer; never the same memory as `in`
  const std::int32_t* tokens = nullptr;   // read by the embedding
  const std::int32_t* targets = nullptr;  // read by the loss layer
  float* loss = nullptr;                  // written by the loss layer: mean cross-entropy over batch * seq
};

/// One backward, after a forward of the same bound layer with the same inputs.
struct LayerBackward {
  std::span<const void* const> params;  // may hold nulls where LayerPlan::backward_reads_params is false
  std::span<const GradTarget> grads;    // one per ParamSpec, in Numerics::gradient
  const void* in = nullptr;             // what forward read; unchanged
  const void* dout = nullptr;           // null for the loss layer
  void* din = nullptr;                  // assigned; null where the layer reads tokens; never dout's or in's memory
  const std::int32_t* tokens = nullptr;
  const std::int32_t* targets = nullptr;
  float loss_scale = 1.0f;  // the loss layer multiplies the loss's gradient by it, and so every gradient of the step
};

/// A layer bound to its shape, device, saved memory and workspace: descriptors and primitives exist. Enqueues on
/// Device::stream() (CUDA) or runs (CPU). Not thread-safe: the thread that drives the device drives it.
class BoundLayer {
 public:
  virtual ~BoundLayer() = default;
  virtual base::Result<void> forward(const LayerForward& call) = 0;
  virtual base::Result<void> backward(const LayerBackward& call) = 0;
};

/// The two pieces of engine memory that a layer is bound to, of LayerPlan's sizes, aligned to 256 bytes.
struct LayerMemory {
  void* saved = nullptr;
  void* workspace = nullptr;
};

/// Immutable description of a layer. Bind it once per rank (and per saved buffer, should there be several).
class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string_view name() const = 0;
  /// In the order of the flat buffer.
  virtual std::span<const ParamSpec> params() const = 0;
  /// Errors  kUnsupported: a shape or dtype that a kernel of the device declines; kAbsent: a library is not here
  virtual base::Result<LayerPlan> plan(const TokenShape& shape, const Numerics& numerics, Device& device) const = 0;
  virtual base::Result<std::unique_ptr<BoundLayer>> bind(const TokenShape& shape, const Numerics& numerics,
                                                         const LayerMemory& memory, Device& device) const = 0;
};

/// Layers in the order of the forward: the first reads tokens, the last gives the loss.
struct Model {
  std::string name;
  std::vector<std::unique_ptr<Layer>> layers;
};

}  // namespace attnbench::fsdp
