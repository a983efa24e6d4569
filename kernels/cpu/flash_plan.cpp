// How flash cuts a problem into tiles and tasks: block sizes from the caches, threads from the rows.
#include "kernels/cpu/flash_plan.hpp"

#include <algorithm>

namespace attnbench::kernels {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

FlashBlocks cut(const Problem& p, const FlashIsa& isa, std::int64_t rows, std::int64_t keys) {
  FlashBlocks b;
  b.isa = isa;
  b.rows = std::min(rows, round_up(std::max<std::int64_t>(p.seq_q, 1), kFlashGroup));
  b.keys = keys;
  b.width = round_up(p.head_dim, isa.lanes);
  b.padded_k = round_up(p.seq_k, isa.panel);
  b.q_blocks = ceil_div(p.seq_q, b.rows);
  b.k_blocks = ceil_div(p.seq_k, b.keys);
  return b;
}

// Query rows and keys of one block of the forward. A block of V is read once per micro-kernel call from the
// second-level cache; with vectors of 64 bytes and wide heads that is what binds, so the block is made small enough for
// the first level (128 x 64 x 4 = 32 KiB) and taller, so that packed keys are read half as often. README.md has the
// figures.
struct ForwardShape {
  std::int64_t rows, keys;
};

ForwardShape forward_shape(const Problem& p, const FlashIsa& isa) {
  return isa.lanes >= 16 && p.head_dim >= 64 ? ForwardShape{96, 128} : ForwardShape{48, 384};
}

// Enough shares of the query blocks that every thread has work and the last round of items is nearly full.
std::int64_t choose_slots(std::int64_t heads, std::int64_t threads, std::int64_t most) {
  if (heads == 0 || heads >= 4 * threads) return 1;
  std::int64_t best = 1;
  double best_use = 0;
  for (std::int64_t slots = 1; slots <= std::min<std::int64_t>(most, ceil_div(2 * threads, heads)); ++slots) {
    const std::int64_t items = heads * slots;
    const double use = static_cast<double>(items) / static_cast<double>(round_up(items, threads));
    if (use > best_use + 0.05) {
      best = slots;
      best_use = use;
    }
  }
  return best;
}

}  // namespace

FlashForwardPlan plan_flash_forward(const Problem& p, int threads, const FlashIsa& isa) {
  FlashForwardPlan plan;
  const ForwardShape shape = forward_shape(p, isa);
  plan.blocks = cut(p, isa, shape.rows, shape.keys);
  const FlashBlocks& b = plan.blocks;
  const std::int64_t kv_heads = p.batch * p.kv_heads;
  plan.key_floats = b.padded_k * p.head_dim;
  plan.value_floats = p.seq_k * b.width;
  FlashLayout all;
  plan.keys = all.take(kv_heads * plan.key_floats);
  plan.values = all.take(kv_heads * plan.value_floats);
  plan.odd = all.take(kv_heads * b.k_blocks, 1);
  FlashLayout own;
  plan.query = own.take(b.rows * b.width);
  plan.scores = own.take(std::max(b.rows * b.keys, isa.panel * b.width));  // also the rows of a panel being packed
  plan.out = own.take(b.rows * b.width);
  plan.state = own.take(2 * b.rows);
  plan.ranges = own.take(2 * b.rows, sizeof(std::int32_t));
  plan.scratch_bytes = own.bytes();
  plan.scratch = all.take(threads, plan.scratch_bytes);
  plan.workspace_bytes = all.bytes();
  return plan;
}

FlashBackwardPlan plan_flash_backward(const Problem& p, int threads, const FlashIsa& isa) {
  FlashBackwardPlan plan;
  plan.blocks = cut(p, isa, 96, 192);
  const FlashBlocks& b = plan.blocks;
  const std::int64_t kv_heads = p.batch * p.kv_heads;
  const std::int64_t group = p.kv_heads > 0 ? p.heads / p.kv_heads : 0;
  plan.slots = choose_slots(kv_heads, threads, std::max<std::int64_t>(1, b.q_blocks * group));
  plan.key_floats = b.padded_k * p.head_dim;
  plan.grad_floats = p.seq_k * b.width;
  FlashLayout all;
  if (plan.slots > 1) plan.partial = all.take(kv_heads * plan.slots * 2 * plan.grad_floats);
  FlashLayout own;
  plan.keys_t = own.take(plan.key_floats);
  plan.values_t = own.take(plan.key_floats);
  plan.keys = own.take(plan.grad_floats);
  if (plan.slots == 1) plan.grads = own.take(2 * plan.grad_floats);
  plan.odd = own.take(b.k_blocks, 1);
  for (std::size_t* block : {&plan.query, &plan.query_b, &plan.dout, &plan.dout_b, &plan.dquery}) {
    *block = own.take(b.rows * b.width);
  }
  // Also the rows of a panel being packed, and a panel each of dO and o while delta is computed.
  plan.scores = own.take(std::max(b.rows * b.keys, isa.panel * b.width));
  plan.dscores = own.take(std::max(b.rows * b.keys, isa.panel * b.width));
  plan.state = own.take(2 * b.rows);
  plan.ranges = own.take(2 * (b.rows + b.keys), sizeof(std::int32_t));
  plan.scratch_bytes = own.bytes();
  plan.scratch = all.take(threads, plan.scratch_bytes);
  plan.workspace_bytes = all.bytes();
  return plan;
}

}  // namespace attnbench::kernels
