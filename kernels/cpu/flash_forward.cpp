// Forward pass of the flash kernel: K and V packed once, then one block of query rows of one head at a time.
#include "kernels/cpu/flash_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/flash_forward.cpp"
#include <atomic>
#include <cmath>
#include <numbers>
#include <thread>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/flash_job.hpp"
#include "kernels/cpu/flash_mask-inl.h"
#include "kernels/cpu/flash_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnbench::kernels::HWY_NAMESPACE {
namespace {

// A thread's pieces of scratch memory and the block it works on.
struct ForwardBlock {
  std::int64_t batch, head, kv_head;
  std::int64_t first, rows;
  float *query, *scores, *out, *row_max, *row_sum;
  std::int32_t *begin, *end;
};

float* floats(void* base, std::size_t offset) {
  return reinterpret_cast<float*>(static_cast<unsigned char*>(base) + offset);
}

// Packs one block of keys and values of one key/value head.
void pack_keys(const FlashForwardJob& job, std::int64_t item, int thread) {
  const FlashForwardPlan& plan = job.plan;
  const FlashBlocks& b = plan.blocks;
  const Problem& p = job.args->problem;
  void* const base = job.args->workspace;
  const std::int64_t pair = item / b.k_blocks;
  const std::int64_t batch = pair / p.kv_heads;
  const std::int64_t head = pair % p.kv_heads;
  const std::int64_t first = item % b.k_blocks * b.keys;
  const std::int64_t last = HWY_MIN(first + b.keys, p.seq_k);
  // At most a panel of rows, which a thread's scores have room for: keys >= panel, rows >= 12 and width <= 256 + 16.
  float* const rows = floats(base, plan.scratch + static_cast<std::size_t>(thread) * plan.scratch_bytes);
  float* const keys = floats(base, plan.keys) + pair * plan.key_floats;
  float* const values = floats(base, plan.values) + pair * plan.value_floats;
  bool odd = false;
  for (std::int64_t key = first; key < last; key += b.isa.panel) {
    const std::int64_t count = HWY_MIN(b.isa.panel, last - key);
    for (std::int64_t i = 0; i < count; ++i) {
      read_row(job.args->v, batch, head, key + i, b.width, rows);
      odd = odd || is_odd(rows, b.width);
      pack_row(rows, 1.0f, b.width, p.seq_k, key + i, values);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      read_row(job.args->k, batch, head, key + i, b.width, rows + i * b.width);
    }
    pack_transposed(rows, b.width, count, p.head_dim, keys + key * p.head_dim);
  }
  static_cast<unsigned char*>(base)[plan.odd + static_cast<std::size_t>(item)] = odd ? 1 : 0;
}

// Maximum of `start` and the scores in [begin, end), whole vectors; NaN may be lost.
float max_of_row(const float* HWY_RESTRICT scores, KeyRange span, float start) {
  const DF d;
  const std::int64_t n = lanes();
  VF max0 = hn::Set(d, start), max1 = max0;
  std::int64_t i = span.begin;
  for (; i + 2 * n <= span.end; i += 2 * n) {
    max0 = hn::Max(max0, hn::LoadU(d, scores + i));
    max1 = hn::Max(max1, hn::LoadU(d, scores + i + n));
  }
  if (i < span.end) max0 = hn::Max(max0, hn::LoadU(d, scores + i));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
}

// scores -> weights 2^(score - shift) over the span; returns their sum.
float weights_of_row(float* HWY_RESTRICT scores, KeyRange span, float shift) {
  const DF d;
  const std::int64_t n = lanes();
  const VF vshift = hn::Set(d, shift);
  VF sum0 = hn::Zero(d), sum1 = sum0;
  std::int64_t i = span.begin;
  for (; i + 2 * n <= span.end; i += 2 * n) {
    const VF p0 = exp2_negative(hn::Sub(hn::LoadU(d, scores + i), vshift));
    const VF p1 = exp2_negative(hn::Sub(hn::LoadU(d, scores + i + n), vshift));
    sum0 = hn::Add(sum0, p0);
    sum1 = hn::Add(sum1, p1);
    hn::StoreU(p0, d, scores + i);
    hn::StoreU(p1, d, scores + i + n);
  }
  if (i < span.end) {
    const VF p0 = exp2_negative(hn::Sub(hn::LoadU(d, scores + i), vshift));
    sum0 = hn::Add(sum0, p0);
    hn::StoreU(p0, d, scores + i);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

// Moves a row of the online softmax to the maximum that its new scores bring; returns what to subtract from them.
// `seen` is the visible part of `span`, which is what later products read.
float raise_maximum(float* scores, KeyRange span, KeyRange seen, float& row_max, float& row_sum, float* out,
                    std::int64_t width) {
  float new_max = max_of_row(scores, span, row_max);
  if (seen.count() > 0 && !(std::fabs(new_max) < kLargest)) {
    saturate(scores, seen.begin, seen.end);
    new_max = max_of_row(scores, span, row_max);
  }
  // No visible key so far: every score is -inf and every weight 0, which -inf - -inf would not give.
  const float shift = new_max == -kInfinity ? 0.0f : new_max;
  if (new_max != row_max) {
    const float alpha = exp2_negative(row_max - shift);
    row_sum *= alpha;
    scale_row(out, alpha, width, out);
    row_max = new_max;
  }
  return shift;
}

// Scores of a group of rows become weights in place. All maxima come first: the rows are independent, so that the
// latency of one row's reductions hides behind the next row's work.
void softmax_group(const FlashForwardJob& job, const ForwardBlock& block, std::int64_t first, std::int64_t count,
                   bool partial) {
  const FlashBlocks& b = job.plan.blocks;
  const std::int64_t last = HWY_MIN(first + kFlashGroup, block.rows);
  const KeyRange span = partial ? widened({block.begin, block.end}, first, last - 1, 1) : KeyRange{0, count};
  float shift[kFlashGroup];
  for (std::int64_t row = first; row < last; ++row) {
    const KeyRange seen{block.begin[row], block.end[row]};
    float* const scores = block.scores + row * b.keys;
    if (partial) fill_unseen(scores, span, seen, -kInfinity);
    shift[row - first] =
        raise_maximum(scores, span, seen, block.row_max[row], block.row_sum[row], block.out + row * b.width, b.width);
  }
  for (std::int64_t row = first; row < last; ++row) {
    block.row_sum[row] += weights_of_row(block.scores + row * b.keys, span, shift[row - first]);
  }
}

// Scores, weights and weighted values of one block of keys.
void forward_keys(const FlashForwardJob& job, const ForwardBlock& block, std::int64_t key_block) {
  const FlashForwardPlan& plan = job.plan;
  const FlashBlocks& b = plan.blocks;
  const Problem& p = job.args->problem;
  const std::int64_t pair = block.batch * p.kv_heads + block.kv_head;
  const std::int64_t key = key_block * b.keys;
  const std::int64_t count = HWY_MIN(b.keys, p.seq_k - key);
  const bool masked = fill_row_ranges(p, block.first, block.rows, key, count, block.begin, block.end);
  const bool partial = masked || count % b.isa.lanes != 0;
  const RowRanges ranges = partial ? RowRanges{block.begin, block.end} : RowRanges{};
  const float* const keys = floats(job.args->workspace, plan.keys) + pair * plan.key_floats + key * p.head_dim;
  const std::int64_t columns = (count + b.isa.panel - 1) / b.isa.panel * b.isa.panel;
  multiply({block.query, b.width}, block.rows, keys, p.head_dim, columns, ranges, block.scores, b.keys);
  for (std::int64_t row = 0; row < block.rows; row += kFlashGroup) softmax_group(job, block, row, count, partial);
  const bool odd = static_cast<unsigned char*>(
                       job.args->workspace)[plan.odd + static_cast<std::size_t>(pair * b.k_blocks + key_block)] != 0;
  const float* const values = floats(job.args->workspace, plan.values) + pair * plan.value_floats;
  add_product<false>({block.scores, b.keys}, block.rows, values, p.seq_k, key, count, b.width, ranges, masked && odd,
                     block.out, b.width);
}

float natural_lse(float row_max, float sum) {
  if (sum == 0) return -kInfinity;
  if (std::fabs(row_max) == kLargest) return row_max + 0 * sum;  // saturated, unless some weight is NaN
  return static_cast<float>(static_cast<double>(row_max) * std::numbers::ln2 + static_cast<double>(std::log(sum)));
}

void finish_rows(const FlashForwardJob& job, const ForwardBlock& block) {
  const Problem& p = job.args->problem;
  const std::int64_t width = job.plan.blocks.width;
  const std::int64_t base = (block.batch * p.heads + block.head) * p.seq_q + block.first;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const float sum = block.row_sum[row];
    const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
    write_row(block.out + row * width, inverse, job.args->o, block.batch, block.head, block.first + row);
    if (p.dtype != Dtype::kFp32) {
      write_row(block.out + row * width, inverse, job.saved.out, block.batch, block.head, block.first + row);
    }
    job.args->lse[base + row] = natural_lse(block.row_max[row], sum);
    job.saved.row_max[base + row] = std::isfinite(block.row_max[row]) ? block.row_max[row] : 0.0f;
    job.saved.inverse_sum[base + row] = inverse;
  }
}

void forward_item(const FlashForwardJob& job, std::int64_t item, int thread) {
  const FlashForwardPlan& plan = job.plan;
  const FlashBlocks& b = plan.blocks;
  const AttentionArgs& args = *job.args;
  const Problem& p = args.problem;
  // A head at a time, so that its packed keys and values stay in the second-level cache. Causal rows see the more keys
  // the later they come: last blocks first, so that the launch ends with short ones.
  const std::int64_t pair = item / b.q_blocks;
  const std::int64_t in_head = item % b.q_blocks;
  const std::int64_t q_block = p.causal ? b.q_blocks - 1 - in_head : in_head;
  unsigned char* const own = static_cast<unsigned char*>(args.workspace) + plan.scratch +
                             static_cast<std::size_t>(thread) * plan.scratch_bytes;
  ForwardBlock block{};
  block.batch = pair / p.heads;
  block.head = pair % p.heads;
  block.kv_head = block.head / (p.heads / p.kv_heads);
  block.first = q_block * b.rows;
  block.rows = HWY_MIN(b.rows, p.seq_q - block.first);
  block.query = floats(own, plan.query);
  block.scores = floats(own, plan.scores);
  block.out = floats(own, plan.out);
  block.row_max = floats(own, plan.state);
  block.row_sum = block.row_max + b.rows;
  block.begin = reinterpret_cast<std::int32_t*>(own + plan.ranges);
  block.end = block.begin + b.rows;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    float* const query = block.query + row * b.width;
    read_row(args.q, block.batch, block.head, block.first + row, b.width, query);
    scale_row(query, p.scale * kLog2E, b.width, query);
    block.row_max[row] = -kInfinity;
    block.row_sum[row] = 0;
  }
  std::fill(block.out, block.out + block.rows * b.width, 0.0f);
  const std::int64_t first_key = visible_keys(p, block.first).begin;
  const std::int64_t last_key = visible_keys(p, block.first + block.rows - 1).end;
  for (std::int64_t key = first_key / b.keys; key * b.keys < last_key; ++key) forward_keys(job, block, key);
  finish_rows(job, block);
}

}  // namespace

FlashIsa isa() { return {lanes(), panel_width()}; }

// One loop for both steps, since waking the pool twice costs more than packing a short problem. The pool hands items
// out in order: whoever gets a block of queries knows that all packing is done or under way on other threads.
void forward(const FlashForwardJob& job) {
  const Problem& p = job.args->problem;
  const FlashBlocks& b = job.plan.blocks;
  struct Steps {
    const FlashForwardJob& job;
    std::int64_t packs;
    std::atomic<std::int64_t> packed{0};
  } steps{job, p.batch * p.kv_heads * b.k_blocks};
  job.pool->parallel_for(steps.packs + p.batch * p.heads * b.q_blocks,
                         [&steps](std::int64_t item, int thread) HWY_ATTR {
                           if (item < steps.packs) {
                             pack_keys(steps.job, item, thread);
                             steps.packed.fetch_add(1, std::memory_order_release);
                             return;
                           }
                           while (steps.packed.load(std::memory_order_acquire) < steps.packs) std::this_thread::yield();
                           forward_item(steps.job, item - steps.packs, thread);
                         });
}

}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnbench::kernels {

HWY_EXPORT(isa);
HWY_EXPORT(forward);

FlashIsa flash_isa() { return HWY_DYNAMIC_DISPATCH(isa)(); }

void run_flash_forward(const FlashForwardJob& job) { HWY_DYNAMIC_DISPATCH(forward)(job); }

}  // namespace attnbench::kernels
#endif
