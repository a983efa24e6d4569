// What one backward launch needs, and the instances it can be launched with.
#pragma once

#include <span>

#include "kernels/cuda/hopper/backward_rows.cuh"
#include "kernels/dtype.hpp"

namespace attnbench::kernels::hopper {

struct BackwardPlan {
  CUtensorMap q, k, v, dout;
  BackwardParams params{};
  RowsParams rows{};
  ConvertRowsParams convert{};
  bool unseen = false;  // there may be keys that no query sees
  int grid = 0;
};

/// One instance of the kernels. `allow` lets it have its shared memory on the current device, before the first launch.
struct BackwardEntry {
  cudaError_t (*allow)() = nullptr;
  cudaError_t (*launch)(const BackwardPlan&, cudaStream_t) = nullptr;
};

struct BackwardInstance {
  int head_dim;
  int tile_m, keys;  // of a tile
  BackwardEntry bf16, fp16, ordered_bf16, ordered_fp16;

  const BackwardEntry& entry(Dtype dtype, bool ordered) const {
    if (ordered) return dtype == Dtype::kBf16 ? ordered_bf16 : ordered_fp16;
    return dtype == Dtype::kBf16 ? bf16 : fp16;
  }
};

extern const BackwardInstance kBackwardD64;
extern const BackwardInstance kBackwardD96;
extern const BackwardInstance kBackwardD128;
extern const BackwardInstance kBackwardD192;
extern const BackwardInstance kBackwardD256;

}  // namespace attnbench::kernels::hopper
