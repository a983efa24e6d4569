// From a problem and its tensors to a launch of the forward kernel: the tile table's rows, tensor maps, the tile order.
#pragma once

#include <span>

#include "kernels/cuda/hopper/forward.cuh"
#include "kernels/kernel.hpp"

namespace attnbench::kernels::hopper {

constexpr int kOneWave = 1, kAnyTiles = 0;

/// Shape of a tile, and the problems that it is for.
struct TileChoice {
  int head_dim;
  bool masked;  // rows may see part of the keys
  int consumers, tile_n, stages, query_stages;
  std::int64_t keys_from;  // shortest seq_k it is for
  int most_tiles;          // kOneWave: for problems of which it makes no more tiles than there are multiprocessors
  const char* tag;         // names what else differs, in the developer's benchmark
};

/// Everything of a launch that follows from the problem and its tensors.
struct ForwardPlan {
  CUtensorMap q, k, v, o;
  ForwardParams params;
  int grid;
};

/// One instance of the kernel. `allow` lets it have its shared memory on the current device, before the first launch.
struct ForwardEntry {
  cudaError_t (*allow)();
  cudaError_t (*launch)(const ForwardPlan& plan, cudaStream_t stream);
};

/// Row of the tile table.
struct ForwardInstance {
  TileChoice tile;
  ForwardEntry bf16, fp16;
};

// The rows, by the files that define them.
std::span<const ForwardInstance> forward_d16();
std::span<const ForwardInstance> forward_d32();
std::span<const ForwardInstance> forward_d64();
std::span<const ForwardInstance> forward_d96();
std::span<const ForwardInstance> forward_d128();
std::span<const ForwardInstance> forward_d192();
std::span<const ForwardInstance> forward_d256();
/// All of them.
std::span<const std::span<const ForwardInstance>> forward_tables();

/// Sets the order of tiles; `last_heads`: a multiple of `section`, `heads` at most.
void order_tiles(ForwardParams& params, int heads, int section, int last_heads);

std::int64_t tiles_of(const Problem& p, const TileChoice& tile);

/// The copy engine wants rows of 16-byte units at 16-byte aligned places, and the driver's help for its maps.
bool engine_takes(const AttentionArgs& args);

/// `counters`: two zeros on the device.
base::Result<ForwardPlan> plan_forward(const AttentionArgs& args, const TileChoice& tile, int multiprocessors,
                                       int* counters);

}  // namespace attnbench::kernels::hopper
