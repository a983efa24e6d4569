// Backward pass of the flash kernel: recomputes the weights block by block; five products per block, dQ, dK and dV
// accumulated in fp32 in a fixed order.
#include "kernels/cpu/flash_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/flash_backward.cpp"
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/flash_job.hpp"
#include "kernels/cpu/flash_mask-inl.h"
#include "kernels/cpu/flash_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnbench::kernels::HWY_NAMESPACE {
namespace {

// One work item: a key/value head and a share of the query blocks of the heads that read it.
struct BackwardItem {
  std::int64_t batch, kv_head, slot;
  float *keys_t, *values_t, *keys;  // packed K^T, V^T for multiply(), K for add_product()
  float *dkeys, *dvalues;           // [Sk, width]
  unsigned char* odd;               // per key block: K holds an infinity or a NaN
  float *query, *query_b;           // [rows, width] times scale * log2(e); packed, times scale
  float *dout, *dout_b, *dquery;
  float *scores, *dscores;
  float *row_max, *delta;
  std::int32_t *row_begin, *row_end, *column_begin, *column_end;
};

// The block of query rows an item is at.
struct QueryBlock {
  std::int64_t head, first, rows;
  bool odd;
};

float* floats(void* base, std::size_t offset) {
  return reinterpret_cast<float*>(static_cast<unsigned char*>(base) + offset);
}

BackwardItem make_item(const FlashBackwardJob& job, std::int64_t index, int thread) {
  const FlashBackwardPlan& plan = job.plan;
  const FlashBlocks& b = plan.blocks;
  void* const base = job.args->workspace;
  unsigned char* const own =
      static_cast<unsigned char*>(base) + plan.scratch + static_cast<std::size_t>(thread) * plan.scratch_bytes;
  const std::int64_t pair = index / plan.slots;
  BackwardItem item{};
  item.batch = pair / job.args->problem.kv_heads;
  item.kv_head = pair % job.args->problem.kv_heads;
  item.slot = index % plan.slots;
  item.keys_t = floats(own, plan.keys_t);
  item.values_t = floats(own, plan.values_t);
  item.keys = floats(own, plan.keys);
  item.dkeys = plan.slots > 1 ? floats(base, plan.partial) + 2 * index * plan.grad_floats : floats(own, plan.grads);
  item.dvalues = item.dkeys + plan.grad_floats;
  item.odd = own + plan.odd;
  item.query = floats(own, plan.query);
  item.query_b = floats(own, plan.query_b);
  item.dout = floats(own, plan.dout);
  item.dout_b = floats(own, plan.dout_b);
  item.dquery = floats(own, plan.dquery);
  item.scores = floats(own, plan.scores);
  item.dscores = floats(own, plan.dscores);
  item.row_max = floats(own, plan.state);
  item.delta = item.row_max + b.rows;
  item.row_begin = reinterpret_cast<std::int32_t*>(own + plan.ranges);
  item.row_end = item.row_begin + b.rows;
  item.column_begin = item.row_end + b.rows;
  item.column_end = item.column_begin + b.keys;
  return item;
}

void pack_item(const FlashBackwardJob& job, const BackwardItem& item) {
  const FlashBlocks& b = job.plan.blocks;
  const Problem& p = job.args->problem;
  float* const rows = item.scores;
  std::fill(item.odd, item.odd + b.k_blocks, static_cast<unsigned char>(0));
  for (std::int64_t key = 0; key < p.seq_k; key += b.isa.panel) {
    const std::int64_t count = HWY_MIN(b.isa.panel, p.seq_k - key);
    for (std::int64_t i = 0; i < count; ++i) {
      float* const row = rows + i * b.width;
      read_row(job.args->k, item.batch, item.kv_head, key + i, b.width, row);
      if (is_odd(row, b.width)) item.odd[key / b.keys] = 1;
      pack_row(row, 1.0f, b.width, p.seq_k, key + i, item.keys);
    }
    pack_transposed(rows, b.width, count, p.head_dim, item.keys_t + key * p.head_dim);
    for (std::int64_t i = 0; i < count; ++i) {
      read_row(job.args->v, item.batch, item.kv_head, key + i, b.width, rows + i * b.width);
    }
    pack_transposed(rows, b.width, count, p.head_dim, item.values_t + key * p.head_dim);
  }
  std::fill(item.dkeys, item.dkeys + p.seq_k * b.width, 0.0f);
  std::fill(item.dvalues, item.dvalues + p.seq_k * b.width, 0.0f);
}

// delta = dO . o of up to a panel of rows. Its terms are added in the order in which multiply() adds those of dP: where
// a row's weights are 1 and 0, o is a row of V and delta equals dP to the bit, so that dS is 0 however large the scale
// that it is multiplied by.
void fill_delta(const BackwardItem& item, std::int64_t width, std::int64_t depth, std::int64_t first,
                std::int64_t count) {
  const DF d;
  const std::int64_t panel = panel_width();
  float* const dout = item.scores;
  float* const out = item.dscores;
  pack_transposed(item.dout + first * width, width, count, depth, dout);
  pack_transposed(item.query + first * width, width, count, depth, out);
  for (std::int64_t i = 0; i < panel; i += lanes()) {
    VF sum = hn::Zero(d);
    for (std::int64_t k = i; k < depth * panel; k += panel) {
      sum = hn::MulAdd(load_floats(dout + k), load_floats(out + k), sum);
    }
    hn::StoreU(sum, d, dout + i);  // of which only this turn has read column i
  }
  std::copy(dout, dout + count, item.delta + first);
}

// Loads a block of query rows. dO, and delta with it, are divided by the row's sum here, so that the weights need not
// be: P (dP - delta) with P = e / sum is e (dO/sum . V - delta/sum).
QueryBlock load_queries(const FlashBackwardJob& job, const BackwardItem& item, std::int64_t head, std::int64_t first) {
  const FlashBlocks& b = job.plan.blocks;
  const AttentionArgs& args = *job.args;
  const Problem& p = args.problem;
  QueryBlock block{head, first, HWY_MIN(b.rows, p.seq_q - first), false};
  const std::int64_t base = (item.batch * p.heads + head) * p.seq_q + first;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    float* const dout = item.dout + row * b.width;
    item.row_max[row] = job.saved.row_max[base + row];
    read_row(job.saved.out, item.batch, head, first + row, b.width, item.query + row * b.width);
    read_row(args.dout, item.batch, head, first + row, b.width, dout);
    scale_row(dout, job.saved.inverse_sum[base + row], b.width, dout);
    pack_row(dout, 1.0f, b.width, b.rows, row, item.dout_b);
  }
  for (std::int64_t row = 0; row < block.rows; row += b.isa.panel) {
    fill_delta(item, b.width, p.head_dim, row, HWY_MIN(b.isa.panel, block.rows - row));
  }
  for (std::int64_t row = 0; row < block.rows; ++row) {
    float* const query = item.query + row * b.width;
    read_row(args.q, item.batch, head, first + row, b.width, query);
    pack_row(query, p.scale, b.width, b.rows, row, item.query_b);
    scale_row(query, p.scale * kLog2E, b.width, query);
    block.odd = block.odd || is_odd(query, b.width) || is_odd(item.dout + row * b.width, b.width);
  }
  std::fill(item.dquery, item.dquery + block.rows * b.width, 0.0f);
  return block;
}

// scores -> weights (times the row's sum), dscores (dP) -> dS, over [begin, end).
void gradient_row(float* HWY_RESTRICT scores, float* HWY_RESTRICT dscores, KeyRange span, float row_max, float delta) {
  const DF d;
  const VF vmax = hn::Set(d, row_max);
  const VF vdelta = hn::Set(d, delta);
  for (std::int64_t i = span.begin; i < span.end; i += lanes()) {
    const VF weight = exp2_negative(hn::Sub(hn::LoadU(d, scores + i), vmax));
    hn::StoreU(weight, d, scores + i);
    hn::StoreU(hn::Mul(weight, hn::Sub(hn::LoadU(d, dscores + i), vdelta)), d, dscores + i);
  }
}

void backward_keys(const FlashBackwardJob& job, const BackwardItem& item, const QueryBlock& block,
                   std::int64_t key_block) {
  const FlashBlocks& b = job.plan.blocks;
  const Problem& p = job.args->problem;
  const std::int64_t key = key_block * b.keys;
  const std::int64_t count = HWY_MIN(b.keys, p.seq_k - key);
  const bool masked = fill_row_ranges(p, block.first, block.rows, key, count, item.row_begin, item.row_end);
  const bool partial = masked || count % b.isa.lanes != 0;
  const RowRanges rows = partial ? RowRanges{item.row_begin, item.row_end} : RowRanges{};
  RowRanges columns;
  if (masked) {
    fill_column_ranges(p, block.first, block.rows, key, count, item.column_begin, item.column_end);
    columns = {item.column_begin, item.column_end};
  }
  const std::int64_t padded = (count + b.isa.panel - 1) / b.isa.panel * b.isa.panel;
  multiply({item.query, b.width}, block.rows, item.keys_t + key * p.head_dim, p.head_dim, padded, rows, item.scores,
           b.keys);
  multiply({item.dout, b.width}, block.rows, item.values_t + key * p.head_dim, p.head_dim, padded, rows, item.dscores,
           b.keys);
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const std::int64_t group = row / kFlashGroup * kFlashGroup;
    float* const scores = item.scores + row * b.keys;
    float* const dscores = item.dscores + row * b.keys;
    KeyRange span{0, count};
    const KeyRange seen{item.row_begin[row], item.row_end[row]};
    if (partial) {
      span = widened(rows, group, HWY_MIN(group + kFlashGroup, block.rows) - 1, kFlashGroup);
      fill_unseen(scores, span, seen, -kInfinity);
    }
    if (std::fabs(item.row_max[row]) == kLargest) saturate(scores, seen.begin, seen.end);
    gradient_row(scores, dscores, span, item.row_max[row], item.delta[row]);
    if (partial) fill_unseen(dscores, span, seen, 0.0f);
  }
  const bool exact = masked && (block.odd || item.odd[key_block] != 0);
  const std::int64_t at = key * b.width;
  add_product<true>({item.scores, b.keys}, count, item.dout_b, b.rows, 0, block.rows, b.width, columns, exact,
                    item.dvalues + at, b.width);
  add_product<true>({item.dscores, b.keys}, count, item.query_b, b.rows, 0, block.rows, b.width, columns, exact,
                    item.dkeys + at, b.width);
  add_product<false>({item.dscores, b.keys}, block.rows, item.keys, p.seq_k, key, count, b.width, rows, exact,
                     item.dquery, b.width);
}

void backward_item(const FlashBackwardJob& job, std::int64_t index, int thread) {
  const FlashBlocks& b = job.plan.blocks;
  const AttentionArgs& args = *job.args;
  const Problem& p = args.problem;
  const std::int64_t group = p.heads / p.kv_heads;
  const BackwardItem item = make_item(job, index, thread);
  pack_item(job, item);
  for (std::int64_t turn = 0; turn < group * b.q_blocks; ++turn) {
    // Slots take blocks to and fro (0 1 2 2 1 0 ...), which evens out causal rows.
    const std::int64_t round = turn / job.plan.slots;
    const std::int64_t place = turn % job.plan.slots;
    if ((round % 2 == 0 ? place : job.plan.slots - 1 - place) != item.slot) continue;
    const std::int64_t head = item.kv_head * group + turn / b.q_blocks;
    const QueryBlock block = load_queries(job, item, head, turn % b.q_blocks * b.rows);
    const std::int64_t first_key = visible_keys(p, block.first).begin;
    const std::int64_t last_key = visible_keys(p, block.first + block.rows - 1).end;
    for (std::int64_t key = first_key / b.keys; key * b.keys < last_key; ++key) backward_keys(job, item, block, key);
    for (std::int64_t row = 0; row < block.rows; ++row) {
      write_row(item.dquery + row * b.width, p.scale, args.dq, item.batch, head, block.first + row);
    }
  }
  if (job.plan.slots > 1) return;
  for (std::int64_t key = 0; key < p.seq_k; ++key) {
    write_row(item.dkeys + key * b.width, 1.0f, args.dk, item.batch, item.kv_head, key);
    write_row(item.dvalues + key * b.width, 1.0f, args.dv, item.batch, item.kv_head, key);
  }
}

// Sums the slots of one block of keys of one head, in slot order, into slot 0, and rounds.
void sum_slots(const FlashBackwardJob& job, std::int64_t index) {
  const FlashBackwardPlan& plan = job.plan;
  const FlashBlocks& b = plan.blocks;
  const AttentionArgs& args = *job.args;
  const Problem& p = args.problem;
  const std::int64_t pair = index / b.k_blocks;
  const std::int64_t first = index % b.k_blocks * b.keys;
  const std::int64_t last = HWY_MIN(first + b.keys, p.seq_k);
  float* const partial = floats(args.workspace, plan.partial) + 2 * pair * plan.slots * plan.grad_floats;
  for (std::int64_t key = first; key < last; ++key) {
    for (std::int64_t which = 0; which < 2; ++which) {
      float* const total = partial + which * plan.grad_floats + key * b.width;
      for (std::int64_t slot = 1; slot < plan.slots; ++slot) {
        const float* const more = total + 2 * slot * plan.grad_floats;
        for (std::int64_t i = 0; i < b.width; i += lanes()) {
          hn::StoreU(hn::Add(load_floats(total + i), load_floats(more + i)), DF(), total + i);
        }
      }
      write_row(total, 1.0f, which == 0 ? args.dk : args.dv, pair / p.kv_heads, pair % p.kv_heads, key);
    }
  }
}

}  // namespace

void backward(const FlashBackwardJob& job) {
  const Problem& p = job.args->problem;
  const std::int64_t pairs = p.batch * p.kv_heads;
  job.pool->parallel_for(pairs * job.plan.slots,
                         [&job](std::int64_t item, int thread) HWY_ATTR { backward_item(job, item, thread); });
  if (job.plan.slots == 1) return;
  job.pool->parallel_for(pairs * job.plan.blocks.k_blocks,
                         [&job](std::int64_t item, int) HWY_ATTR { sum_slots(job, item); });
}

}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnbench::kernels {

HWY_EXPORT(backward);

void run_flash_backward(const FlashBackwardJob& job) { HWY_DYNAMIC_DISPATCH(backward)(job); }

}  // namespace attnbench::kernels
#endif
