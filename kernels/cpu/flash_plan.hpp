// How the flash kernel cuts a problem into blocks and lays out its scratch memory. Pure arithmetic, no pointers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/problem.hpp"

namespace attnbench::kernels {

/// Width of the vectors that the kernel will run on, in floats.
struct FlashIsa {
  std::int64_t lanes = 4;  // of one vector
  std::int64_t panel = 8;  // of the widest micro-kernel: what packed operands are cut into
};

/// Micro-kernels work on groups of rows whose sizes divide this, so masks are widened to multiples of it.
inline constexpr std::int64_t kFlashGroup = 12;

/// Hands out pieces of a buffer, each aligned to 64 bytes; what remains at the end is the size.
class FlashLayout {
 public:
  std::size_t take(std::int64_t count, std::size_t size = sizeof(float)) {
    const std::size_t offset = bytes_;
    bytes_ += (static_cast<std::size_t>(count) * size + 63) / 64 * 64;
    return offset;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// Block sizes and counts shared by both passes.
///
/// Units  rows, keys, floats
struct FlashBlocks {
  FlashIsa isa;
  std::int64_t rows = 0;      // query rows of a block
  std::int64_t keys = 0;      // keys of a block: a multiple of the panel, in the backward of kFlashGroup too
  std::int64_t width = 0;     // head_dim rounded up to whole vectors
  std::int64_t padded_k = 0;  // seq_k rounded up to whole panels
  std::int64_t q_blocks = 0;
  std::int64_t k_blocks = 0;
};

/// Forward: K (transposed) and V are packed once for all threads; a work item is a block of query rows of one head.
///
/// Memory  packed K and V in fp32 (as large as fp32 K and V, but K in whole panels: 64 rows for a short Sk) + per
/// thread q, o [rows, width] and scores [rows, keys]
struct FlashForwardPlan {
  FlashBlocks blocks;
  std::int64_t key_floats = 0;    // of one packed K
  std::int64_t value_floats = 0;  // of one packed V
  std::size_t keys = 0, values = 0, odd = 0;
  std::size_t scratch = 0, scratch_bytes = 0;
  std::size_t query = 0, scores = 0, out = 0, state = 0, ranges = 0;  // inside a thread's scratch
  std::size_t workspace_bytes = 0;
};

/// Backward: a work item is one key/value head and one of `slots` shares of its query blocks. An item adds into its own
/// dK and dV; with more than one slot a second loop sums them in slot order, so results never depend on timing.
///
/// Memory  per thread packed K, K transposed, V transposed, per item in flight dK and dV, all fp32
struct FlashBackwardPlan {
  FlashBlocks blocks;
  std::int64_t slots = 1;
  std::int64_t key_floats = 0;   // of one transposed K or V
  std::int64_t grad_floats = 0;  // of one dK or dV
  std::size_t partial = 0;       // slots > 1: dK and dV of every item
  std::size_t scratch = 0, scratch_bytes = 0;
  std::size_t keys_t = 0, values_t = 0, keys = 0, grads = 0, odd = 0;  // inside a thread's scratch
  std::size_t query = 0, query_b = 0, dout = 0, dout_b = 0, dquery = 0, scores = 0, dscores = 0, state = 0, ranges = 0;
  std::size_t workspace_bytes = 0;
};

FlashForwardPlan plan_flash_forward(const Problem& problem, int threads, const FlashIsa& isa);
FlashBackwardPlan plan_flash_backward(const Problem& problem, int threads, const FlashIsa& isa);

}  // namespace attnbench::kernels
