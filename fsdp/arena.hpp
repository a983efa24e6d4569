// All memory of the engine, reserved piece by piece, then allocated once: a step allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "fsdp/layer.hpp"
#include "fsdp/memory.hpp"

namespace attnbench::fsdp {

/// A piece of the arena; `offset` is in the category's own buffer.
struct Piece {
  Category category = Category::kMaster;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// One device buffer per category, and the ledger of what was asked for.
class Arena {
 public:
  /// Rounded up to kAlignBytes. Only before allocate().
  Piece reserve(Category category, std::size_t bytes);
  /// Errors  kOutOfMemory: says which category, and what all of them are
  base::Result<void> allocate(Device& device);
  /// Null for a piece of no bytes.
  void* at(const Piece& piece) const;
  const MemoryUse& ledger() const { return ledger_; }

 private:
  MemoryUse ledger_;
  std::array<kernels::Buffer, kCategories> buffers_;
};

/// "master 12.0 MiB, gathered 8.00 MiB, ..., 34.1 MiB in all": categories that are not empty.
std::string describe(const MemoryUse& use);

/// What the engine works on: pieces of one arena as pointers.
struct EngineMemory {
  float* trainable = nullptr;  // master weights; shards of all units, one after the other
  float* frozen = nullptr;
  float* first = nullptr;  // moments
  float* second = nullptr;
  float* gradient = nullptr;  // of `trainable`
  std::vector<void*> weight_slots, gradient_slots, packs;
  std::vector<void*> own_weights, own_gradients;  // by layer; null where it uses slots
  std::vector<void*> saved, outputs;              // by layer
  std::array<void*, 2> output_gradients{};        // of layer i in [i % 2]
  void* workspace = nullptr;
  void* scratch = nullptr;
  std::int32_t* tokens = nullptr;
  std::int32_t* targets = nullptr;
  float* losses = nullptr;    // one per micro-batch
  double* numbers = nullptr;  // what ranks tell each other: kStepNumbers each
  double* verdict = nullptr;  // what they conclude: kVerdictNumbers
};

struct Schedule;
struct ScheduleLayer;

/// Reserves what the schedule, the layers and the transport need, allocates it, and fills it with zeros.
base::Result<EngineMemory> allocate_memory(Arena& arena, const Layout& layout, std::span<const LayerPlan> plans,
                                           const Schedule& schedule, std::span<const ScheduleLayer> layers,
                                           const TokenShape& tokens, const EngineOptions& options,
                                           std::int64_t scratch_parts, Device& device);

}  // namespace attnbench::fsdp
