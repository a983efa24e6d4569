// What the host hands to the flash kernels: plain structures, passed by value.
#pragma once

#include <cstdint>

namespace attnbench::kernels::flash_cuda {

/// A 16-bit input [B, H, S, D]: rows contiguous and aligned to 16 bytes, D a multiple of 8. Strides in elements.
/// fp32 inputs arrive split in two bf16 planes, `plane` elements apart.
struct Input {
  const void* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t plane = 0;
};

/// An output [B, H, S, D] of the problem's own type, any strides. `pairs`: two neighbours may be stored at once.
struct Output {
  void* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 1;
  bool pairs = false;
};

/// Sizes and mask of the problem, in the 32-bit form that kernels use for positions (offsets are 64-bit).
struct Shape {
  int heads = 1;
  int group = 1;  // query heads per key/value head
  int seq_q = 0;
  int seq_k = 0;
  int head_dim = 0;  // columns of the outputs; inputs are stored with the next multiple of 8
  int causal = 0;
  int window = -1;          // keys to the left of the diagonal, -1: no limit
  float scale = 1.0f;       // of the logits
  float scale_log2 = 1.0f;  // max(|scale| * log2(e), tiny): the sign is `negative`, and 0 * -inf must not happen
  int negative = 0;
};

/// Which tile a block computes: heads are taken in sections whose keys and values share the L2 cache, and inside a
/// section the longest tiles come first.
struct Order {
  int tiles = 1;           // along the sequence
  int section = 1;         // heads per section
  std::int64_t heads = 1;  // batch * heads
  int fold = 0;            // blocks from this one on run in reverse, so that the longest share their processor with the
                           // shortest; 0: none
};

struct FwdParams {
  Shape shape;
  Order order;
  Input q, k, v;
  Output o;
  float* lse = nullptr;     // [B, H, Sq]
  float2* saved = nullptr;  // [B, H, Sq]: largest score (times the sign of the scale), log2 of the sum; null: unwanted
};

struct BwdParams {
  Shape shape;
  Order order;
  Input q, k, v, dout;
  const float2* stats = nullptr;  // [B, H, Sq]: (lse * log2(e), +inf where no key is visible; delta)
  const float2* saved = nullptr;  // FwdParams::saved
  float* dq_sum = nullptr;        // [B, H, Sq, D of the instance], added to by all blocks; null: dq has its own kernel
  Output dq, dk, dv;
};

/// One tensor to bring into the kernels' input form: dense, rows padded to a multiple of 8 elements, fp32 split.
struct PackJob {
  const void* source = nullptr;
  std::int64_t batch = 0, head = 0, row = 0, column = 1;  // strides of the source
  void* target = nullptr;
  std::int64_t rows = 0;  // B * H * S
  int heads = 1;
  int seq = 1;
  std::int64_t plane = 0;
};

/// Row statistics for the backward: delta = sum_d dO O, and lse in base 2, from `saved` where that is not null; zeroes
/// dq_sum.
struct StatsJob {
  const void* o = nullptr;
  std::int64_t o_batch = 0, o_head = 0, o_row = 0, o_column = 1;
  const void* dout = nullptr;
  std::int64_t g_batch = 0, g_head = 0, g_row = 0, g_column = 1;
  const float* lse = nullptr;
  const float2* saved = nullptr;
  float scale_log2 = 1.0f;
  float2* stats = nullptr;
  float* dq_sum = nullptr;
  int dq_width = 0;
  std::int64_t rows = 0;
  int heads = 1;
  int seq = 1;
};

struct PrepareParams {
  PackJob pack[4];
  int packs = 0;
  StatsJob stats;  // rows = 0: none
  int head_dim = 0;
  int packed_dim = 0;
};

/// dq = scale * dq_sum, in the problem's type.
struct ConvertParams {
  const float* dq_sum = nullptr;
  int dq_width = 0;
  Output dq;
  std::int64_t rows = 0;
  int heads = 1;
  int seq = 1;
  int head_dim = 0;
  float scale = 1.0f;
};

}  // namespace attnbench::kernels::flash_cuda
