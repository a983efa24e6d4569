// The arena, and the engine's pieces of it.
#include "fsdp/arena.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bench/base/units.hpp"
#include "fsdp/schedule.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;

std::size_t bytes_of(std::int64_t elements, Dtype dtype) {
  return static_cast<std::size_t>(elements) * kernels::size_of(dtype);
}

/// Every piece that the engine will ask the arena for.
struct Pieces {
  Piece trainable, frozen, first, second, gradient, workspace, scratch, tokens, targets, losses, numbers, verdict;
  std::vector<Piece> weight_slots, gradient_slots, packs, own_weights, own_gradients, saved, outputs;
  std::array<Piece, 2> passing, output_gradients;
};

class Reserver {
 public:
  Reserver(Arena& arena, const Layout& layout, std::span<const LayerPlan> plans, const Schedule& schedule,
           std::span<const ScheduleLayer> layers, const EngineOptions& options)
      : arena_(arena), layout_(layout), plans_(plans), schedule_(schedule), layers_(layers), options_(options) {}

  Pieces reserve(const TokenShape& tokens, std::int64_t scratch_parts) {
    reserve_kept();
    reserve_weights();
    reserve_gradients(scratch_parts);
    reserve_activations();
    const std::size_t token_bytes = static_cast<std::size_t>(tokens.tokens()) * sizeof(std::int32_t);
    pieces_.tokens = arena_.reserve(Category::kInputs, token_bytes);
    pieces_.targets = arena_.reserve(Category::kInputs, token_bytes);
    pieces_.losses =
        arena_.reserve(Category::kInputs, static_cast<std::size_t>(options_.micro_batches) * sizeof(float));
    pieces_.numbers =
        arena_.reserve(Category::kInputs, static_cast<std::size_t>(layout_.world) * kStepNumbers * sizeof(double));
    pieces_.verdict = arena_.reserve(Category::kInputs, kVerdictNumbers * sizeof(double));
    return pieces_;
  }

 private:
  Piece fp32(Category category, std::int64_t elements) {
    return arena_.reserve(category, bytes_of(elements, Dtype::kFp32));
  }

  void reserve_kept() {
    pieces_.trainable = fp32(Category::kMaster, layout_.trainable_kept);
    pieces_.frozen = fp32(Category::kMaster, layout_.frozen_kept);
    if (options_.optimizer.kind == OptimizerKind::kAdamW) {
      pieces_.first = fp32(Category::kOptimizer, layout_.trainable_kept);
      pieces_.second = fp32(Category::kOptimizer, layout_.trainable_kept);
    }
    pieces_.gradient = fp32(Category::kGradShard, layout_.trainable_kept);
  }

  /// Slots for layers that take turns; memory of their own for the others, and for all in ddp below fp32.
  void reserve_weights() {
    const bool copies = options_.strategy == Strategy::kDdp && options_.param_dtype != Dtype::kFp32;
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::int64_t elements = layout_.units[i].padded();
      const bool own = copies || (layers_[i].gathers && layers_[i].keeps_weights);
      pieces_.own_weights.push_back(
          arena_.reserve(Category::kGathered, own ? bytes_of(elements, options_.param_dtype) : 0));
      if (layers_[i].gathers && !own) largest = std::max(largest, elements);
    }
    for (int slot = 0; slot < schedule_.gather_slots; ++slot) {
      pieces_.weight_slots.push_back(arena_.reserve(Category::kGathered, bytes_of(largest, options_.param_dtype)));
    }
  }

  void reserve_gradients(std::int64_t scratch_parts) {
    const Dtype dtype = gradient_dtype(options_);
    std::int64_t largest = 0, largest_in_slot = 0;
    int with_gradients = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::int64_t elements = layout_.units[i].trainable.padded;
      const bool own = layers_[i].keeps_gradients || keeps_whole_gradients(options_);
      const bool reserved = own && !reduces_in_place(options_);
      pieces_.own_gradients.push_back(arena_.reserve(Category::kGradients, reserved ? bytes_of(elements, dtype) : 0));
      largest = std::max(largest, elements);
      if (!own) largest_in_slot = std::max(largest_in_slot, elements);
      with_gradients += elements > 0 ? 1 : 0;
    }
    for (int slot = 0; slot < schedule_.gradient_slots; ++slot) {
      pieces_.gradient_slots.push_back(arena_.reserve(Category::kGradients, bytes_of(largest_in_slot, dtype)));
    }
    for (int pack = 0; pack < std::min(gradient_slots(options_), with_gradients) && options_.reduce_dtype != dtype;
         ++pack) {
      pieces_.packs.push_back(arena_.reserve(Category::kReduce, bytes_of(largest, options_.reduce_dtype)));
    }
    pieces_.scratch =
        arena_.reserve(Category::kScratch, bytes_of(largest / layout_.world * scratch_parts, options_.reduce_dtype));
  }

  void reserve_activations() {
    std::size_t passing = 0, largest = 0, workspace = 0;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      const std::size_t bytes = bytes_of(plans_[i].out_elements, options_.param_dtype);
      const bool kept = output_is_kept(plans_, i);
      pieces_.saved.push_back(arena_.reserve(Category::kSaved, plans_[i].saved_bytes));
      pieces_.outputs.push_back(arena_.reserve(Category::kActivations, kept ? bytes : 0));
      largest = std::max(largest, bytes);
      workspace = std::max(workspace, plans_[i].workspace_bytes);
      if (!kept) passing = std::max(passing, bytes);
    }
    for (Piece& piece : pieces_.passing) piece = arena_.reserve(Category::kActivations, passing);
    for (Piece& piece : pieces_.output_gradients) piece = arena_.reserve(Category::kActivations, largest);
    pieces_.workspace = arena_.reserve(Category::kWorkspace, workspace);
  }

  Arena& arena_;
  const Layout& layout_;
  std::span<const LayerPlan> plans_;
  const Schedule& schedule_;
  std::span<const ScheduleLayer> layers_;
  const EngineOptions& options_;
  Pieces pieces_;
};

std::vector<void*> pointers(const Arena& arena, const std::vector<Piece>& pieces) {
  std::vector<void*> all;
  for (const Piece& piece : pieces) all.push_back(arena.at(piece));
  return all;
}

EngineMemory pointers(const Arena& arena, const Pieces& pieces, std::span<const LayerPlan> plans) {
  EngineMemory memory;
  memory.trainable = static_cast<float*>(arena.at(pieces.trainable));
  memory.frozen = static_cast<float*>(arena.at(pieces.frozen));
  memory.first = static_cast<float*>(arena.at(pieces.first));
  memory.second = static_cast<float*>(arena.at(pieces.second));
  memory.gradient = static_cast<float*>(arena.at(pieces.gradient));
  memory.weight_slots = pointers(arena, pieces.weight_slots);
  memory.gradient_slots = pointers(arena, pieces.gradient_slots);
  memory.packs = pointers(arena, pieces.packs);
  memory.own_weights = pointers(arena, pieces.own_weights);
  memory.own_gradients = pointers(arena, pieces.own_gradients);
  memory.saved = pointers(arena, pieces.saved);
  memory.outputs = pointers(arena, pieces.outputs);
  std::size_t passing = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].out_elements > 0 && !output_is_kept(plans, i))
      memory.outputs[i] = arena.at(pieces.passing[passing++ % 2]);
  }
  for (std::size_t i = 0; i < 2; ++i) memory.output_gradients[i] = arena.at(pieces.output_gradients[i]);
  memory.workspace = arena.at(pieces.workspace);
  memory.scratch = arena.at(pieces.scratch);
  memory.tokens = static_cast<std::int32_t*>(arena.at(pieces.tokens));
  memory.targets = static_cast<std::int32_t*>(arena.at(pieces.targets));
  memory.losses = static_cast<float*>(arena.at(pieces.losses));
  memory.numbers = static_cast<double*>(arena.at(pieces.numbers));
  memory.verdict = static_cast<double*>(arena.at(pieces.verdict));
  return memory;
}

}  // namespace

Piece Arena::reserve(Category category, std::size_t bytes) {
  const std::size_t offset = ledger_[category];
  ledger_[category] += align_bytes(bytes);
  return {category, offset, bytes};
}

Result<void> Arena::allocate(Device& device) {
  for (std::size_t i = 0; i < kCategories; ++i) {
    auto buffer = device.allocate(ledger_.bytes[i]);
    if (!buffer) {
      return base::fail(
          buffer.error().kind,
          fmt::format("{} of {} for fsdp: {} ({})", base::format_bytes(static_cast<double>(ledger_.bytes[i])),
                      to_string(static_cast<Category>(i)), buffer.error().message, describe(ledger_)));
    }
    buffers_[i] = std::move(*buffer);
    if (buffers_[i].bytes() == 0) continue;
    if (auto ok = device.fill_bytes(buffers_[i].data(), 0, buffers_[i].bytes()); !ok) return ok;
  }
  return {};
}

void* Arena::at(const Piece& piece) const {
  const kernels::Buffer& buffer = buffers_[static_cast<std::size_t>(piece.category)];
  return piece.bytes == 0 ? nullptr : static_cast<std::byte*>(buffer.data()) + piece.offset;
}

std::string describe(const MemoryUse& use) {
  std::string text;
  for (std::size_t i = 0; i < kCategories; ++i) {
    if (use.bytes[i] == 0) continue;
    text += fmt::format("{} {}, ", to_string(static_cast<Category>(i)),
                        base::format_bytes(static_cast<double>(use.bytes[i])));
  }
  return text + base::format_bytes(static_cast<double>(use.total())) + " in all";
}

Result<EngineMemory> allocate_memory(Arena& arena, const Layout& layout, std::span<const LayerPlan> plans,
                                     const Schedule& schedule, std::span<const ScheduleLayer> layers,
                                     const TokenShape& tokens, const EngineOptions& options, std::int64_t scratch_parts,
                                     Device& device) {
  const Pieces pieces = Reserver(arena, layout, plans, schedule, layers, options).reserve(tokens, scratch_parts);
  if (auto ok = arena.allocate(device); !ok) return tl::unexpected(ok.error());
  return pointers(arena, pieces, plans);
}

}  // namespace attnbench::fsdp
