// What the run-time dispatched parts of the flash kernel are given, and where they are reached.
#pragma once

#include "kernels/cpu/flash_plan.hpp"
#include "kernels/device/thread_pool.hpp"
#include "kernels/kernel.hpp"

namespace attnbench::kernels {

/// Row maximum (of scale * log2(e) * q.k) and reciprocal row sum, kept from forward to backward beside the LSE: with
/// logits of 1e9 the LSE rounded to fp32 no longer holds ln(sum), these two do.
///
/// `out` is o before it is rounded: delta = dO . o out of an o in bf16 is wrong by 2^-9 of its terms, and so are dQ and
/// dK, which are sums that cancel.
struct FlashSaved {
  float* row_max = nullptr;      // [B, H, Sq], 0 where the row has no finite maximum
  float* inverse_sum = nullptr;  // [B, H, Sq], 0 where no key is visible, NaN where the row is
  Tensor out;                    // fp32 [B, H, Sq, D]: the o of an fp32 problem, else a copy
};

struct FlashForwardJob {
  const AttentionArgs* args = nullptr;
  FlashForwardPlan plan;
  FlashSaved saved;
  ThreadPool* pool = nullptr;
};

struct FlashBackwardJob {
  const AttentionArgs* args = nullptr;
  FlashBackwardPlan plan;
  FlashSaved saved;
  ThreadPool* pool = nullptr;
};

/// Vector width of the instruction set that this machine will use.
FlashIsa flash_isa();

void run_flash_forward(const FlashForwardJob& job);
void run_flash_backward(const FlashBackwardJob& job);

}  // namespace attnbench::kernels
