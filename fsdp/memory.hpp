// Bytes of one rank by category: what the formula says, and what the engine's arena was asked for. The two are equal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fsdp/layer.hpp"
#include "fsdp/options.hpp"
#include "fsdp/shard.hpp"
#include "kernels/shard_ops.hpp"

namespace attnbench::fsdp {

/// What memory is for.
enum class Category : std::uint8_t {
  kMaster,       // fp32 weights that this rank keeps
  kOptimizer,    // fp32 moments of those
  kGradShard,    // fp32 gradients of those
  kGathered,     // whole weights in the compute type
  kGradients,    // whole gradients before their reduction
  kReduce,       // whole gradients rounded to the reduce type, where that is another one
  kScratch,      // what the transport receives before it adds
  kSaved,        // what layers keep from forward to backward
  kActivations,  // between layers, and their gradients
  kWorkspace,    // shared by all layers
  kInputs,       // tokens, targets, loss and the numbers that ranks exchange
};
inline constexpr std::size_t kCategories = 11;

constexpr std::string_view to_string(Category category) {
  constexpr std::array<std::string_view, kCategories> kNames{"master",      "optimizer", "grad_shard", "gathered",
                                                             "gradients",   "reduce",    "scratch",    "saved",
                                                             "activations", "workspace", "inputs"};
  return kNames[static_cast<std::size_t>(category)];
}

struct MemoryUse {
  std::array<std::size_t, kCategories> bytes{};

  std::size_t& operator[](Category category) { return bytes[static_cast<std::size_t>(category)]; }
  std::size_t operator[](Category category) const { return bytes[static_cast<std::size_t>(category)]; }
  std::size_t total() const;
  bool operator==(const MemoryUse&) const = default;
};

/// Every piece of the arena starts at a multiple of this.
inline constexpr std::size_t kAlignBytes = 256;

constexpr std::size_t align_bytes(std::size_t bytes) { return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes; }

using kernels::kStepNumbers;
using kernels::kVerdictNumbers;

/// The formula. With P the padded elements of a unit, T of its trainable part, N ranks, b the bytes of an element:
///
///   master      4 sum P / N                  (ddp: / 1, here and in the next two)
///   optimizer   8 sum T / N (adamw), 0 (sgd)
///   grad_shard  4 sum T / N
///   gathered    b_param (sum P of tied-to units + min(d + 1, units) max P of the others); shard_grad_op: b_param sum
///   P;
///               ddp: as that, and 0 in fp32, where layers read the master weights
///   gradients   b_grad (sum T of tied-to units + min(g, units) max T of the others), g = 2 (1 where d = 0); whole
///   gradients kept: b_grad sum T,
///               and 0 where ddp reduces in place
///   reduce      b_reduce min(g, units) max T where b_reduce != b_grad, else 0
///   scratch     b_reduce max T / N * `scratch_parts` of the transport
///   saved       sum of what layers save; workspace the largest; both rounded up to 256 bytes
///   activations an output that a backward reads is kept, others share two; two gradients of the largest size
///   inputs      tokens and targets (int32), a loss per micro-batch, N times kStepNumbers and kVerdictNumbers doubles
MemoryUse predict_memory(const Layout& layout, std::span<const LayerPlan> plans, const TokenShape& tokens,
                         const EngineOptions& options, std::int64_t scratch_parts);

/// Outputs of layers that need no memory of their own, since no backward reads them: they alternate between two.
bool output_is_kept(std::span<const LayerPlan> plans, std::size_t layer);

}  // namespace attnbench::fsdp
