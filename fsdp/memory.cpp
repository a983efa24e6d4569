// The memory formula, category by category.
#include "fsdp/memory.hpp"

#include <algorithm>
#include <numeric>

namespace attnbench::fsdp {
namespace {

std::size_t bytes_of(std::int64_t elements, Dtype dtype) {
  return static_cast<std::size_t>(elements) * kernels::size_of(dtype);
}

/// sum of those that have memory of their own, plus `slots` times the largest of the others.
std::int64_t ring(const Layout& layout, int slots, std::int64_t (*size)(const Unit&)) {
  std::int64_t own = 0, largest = 0;
  int others = 0;
  for (const Unit& unit : layout.units) {
    const std::int64_t elements = size(unit);
    if (elements == 0) continue;
    if (unit.tied_to) {
      own += elements;
    } else {
      largest = std::max(largest, elements);
      ++others;
    }
  }
  return own + std::min(slots, others) * largest;
}

std::int64_t sum(const Layout& layout, std::int64_t (*size)(const Unit&)) {
  return std::accumulate(layout.units.begin(), layout.units.end(), std::int64_t{0},
                         [size](std::int64_t total, const Unit& unit) { return total + size(unit); });
}

std::int64_t whole(const Unit& unit) { return unit.padded(); }
std::int64_t trainable(const Unit& unit) { return unit.trainable.padded; }

std::size_t gathered_bytes(const Layout& layout, const EngineOptions& options) {
  if (options.strategy == Strategy::kDdp && options.param_dtype == Dtype::kFp32) return 0;
  if (options.strategy != Strategy::kFsdp) return bytes_of(sum(layout, whole), options.param_dtype);
  return bytes_of(ring(layout, options.prefetch + 1, whole), options.param_dtype);
}

std::size_t gradient_bytes(const Layout& layout, const EngineOptions& options) {
  if (reduces_in_place(options)) return 0;
  if (keeps_whole_gradients(options)) return bytes_of(sum(layout, trainable), gradient_dtype(options));
  return bytes_of(ring(layout, gradient_slots(options), trainable), gradient_dtype(options));
}

std::size_t activation_bytes(std::span<const LayerPlan> plans, Dtype dtype) {
  std::size_t kept = 0, passing = 0, largest = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const std::size_t bytes = align_bytes(bytes_of(plans[i].out_elements, dtype));
    largest = std::max(largest, bytes);
    if (output_is_kept(plans, i)) {
      kept += bytes;
    } else {
      passing = std::max(passing, bytes);
    }
  }
  return kept + 2 * passing + 2 * largest;
}

}  // namespace

std::size_t MemoryUse::total() const { return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}); }

bool output_is_kept(std::span<const LayerPlan> plans, std::size_t layer) {
  return layer + 1 < plans.size() && plans[layer + 1].backward_reads_input;
}

MemoryUse predict_memory(const Layout& layout, std::span<const LayerPlan> plans, const TokenShape& tokens,
                         const EngineOptions& options, std::int64_t scratch_parts) {
  std::int64_t largest = 0;
  int with_gradients = 0;
  for (const Unit& unit : layout.units) {
    largest = std::max(largest, unit.trainable.padded);
    with_gradients += unit.trainable.padded > 0 ? 1 : 0;
  }
  MemoryUse use;
  use[Category::kMaster] = bytes_of(layout.trainable_kept + layout.frozen_kept, Dtype::kFp32);
  use[Category::kOptimizer] =
      options.optimizer.kind == OptimizerKind::kAdamW ? 2 * bytes_of(layout.trainable_kept, Dtype::kFp32) : 0;
  use[Category::kGradShard] = bytes_of(layout.trainable_kept, Dtype::kFp32);
  use[Category::kGathered] = gathered_bytes(layout, options);
  use[Category::kGradients] = gradient_bytes(layout, options);
  if (options.reduce_dtype != gradient_dtype(options)) {
    use[Category::kReduce] =
        bytes_of(std::min(gradient_slots(options), with_gradients) * largest, options.reduce_dtype);
  }
  use[Category::kScratch] = bytes_of(largest / layout.world * scratch_parts, options.reduce_dtype);
  for (const LayerPlan& plan : plans) {
    use[Category::kSaved] += align_bytes(plan.saved_bytes);
    use[Category::kWorkspace] = std::max(use[Category::kWorkspace], align_bytes(plan.workspace_bytes));
  }
  use[Category::kActivations] = activation_bytes(plans, options.param_dtype);
  use[Category::kInputs] = 2 * align_bytes(static_cast<std::size_t>(tokens.tokens()) * sizeof(std::int32_t)) +
                           align_bytes(static_cast<std::size_t>(options.micro_batches) * sizeof(float)) +
                           align_bytes(static_cast<std::size_t>(layout.world) * kStepNumbers * sizeof(double)) +
                           align_bytes(kVerdictNumbers * sizeof(double));
  return use;
}

}  // namespace attnbench::fsdp
