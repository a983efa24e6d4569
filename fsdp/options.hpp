// What the engine can be asked for, as plain values. Every default of the engine lives here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "fsdp/layer.hpp"

namespace attnbench::fsdp {

/// fsdp: weights, gradients and optimizer state are sharded; weights are gathered for each use and dropped after it.
/// shard_grad_op: as fsdp, but a step gathers each weight once and keeps it to its end.
/// ddp: every rank keeps everything, and gradients are summed over the ranks.
enum class Strategy : std::uint8_t { kFsdp, kShardGradOp, kDdp };

constexpr std::string_view to_string(Strategy strategy) {
  switch (strategy) {
    case Strategy::kFsdp:
      return "fsdp";
    case Strategy::kShardGradOp:
      return "shard_grad_op";
    case Strategy::kDdp:
      return "ddp";
  }
  return "?";
}

enum class OptimizerKind : std::uint8_t { kAdamW, kSgd };

constexpr std::string_view to_string(OptimizerKind kind) { return kind == OptimizerKind::kAdamW ? "adamw" : "sgd"; }

/// AdamW with decoupled decay of every tensor (Loshchilov & Hutter 2019), or plain gradient descent.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // sgd: added to the gradient
};

/// How the micro-batches of a step add up. sharded: each is reduced, and shards add up. unsharded: whole gradients add
/// up on every rank, and the last micro-batch reduces them; costs the memory of all gradients, saves the reductions.
enum class Accumulation : std::uint8_t { kSharded, kUnsharded };

struct EngineOptions {
  Strategy strategy = Strategy::kFsdp;
  Dtype param_dtype = Dtype::kFp32;   // of gathered weights and activations; the kept ones are fp32
  Dtype reduce_dtype = Dtype::kFp32;  // of gradients between ranks; they are summed in fp32
  int prefetch = 2;  // layers whose gather runs ahead of the one that computes; 0: all at need, nothing overlaps
  int micro_batches = 1;
  Accumulation accumulation = Accumulation::kSharded;
  bool checkpoint = false;   // keep layer inputs alone and repeat the forward in the backward
  double clip_norm = 0;      // 0: no clipping
  double loss_scale = 1024;  // fp16 only: first value; halved, and the step skipped, when a gradient is not finite
  OptimizerOptions optimizer;
  bool report_norm = false;   // compute the gradient's norm also where nothing needs it
  bool deterministic = true;  // the same bits in every run, on a GPU too
  bool replay = true;         // on a device that can: capture the step once, then replay it as one
  bool poison = false;        // fill dropped weights with NaN, so that a use outside their window shows
};

/// Element type in which layers write gradients: fp32 where that is what travels, else that of the weights.
constexpr Dtype gradient_dtype(const EngineOptions& options) {
  return options.reduce_dtype == Dtype::kFp32 ? Dtype::kFp32 : options.param_dtype;
}

/// Whole gradients live on every rank for the length of a step.
constexpr bool keeps_whole_gradients(const EngineOptions& options) {
  return options.strategy == Strategy::kDdp ||
         (options.accumulation == Accumulation::kUnsharded && options.micro_batches > 1);
}

/// Layers whose gradients are whole at one time: one is reduced while the next is computed.
constexpr int gradient_slots(const EngineOptions& options) { return options.prefetch == 0 ? 1 : 2; }

/// ddp in fp32 writes gradients where the optimizer reads them, and reduces them there.
constexpr bool reduces_in_place(const EngineOptions& options) {
  return options.strategy == Strategy::kDdp && gradient_dtype(options) == Dtype::kFp32 &&
         options.reduce_dtype == Dtype::kFp32;
}

}  // namespace attnbench::fsdp
