// Checks what a kernel wrote against attention in double precision, before anything is timed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/measure/inputs.hpp"
#include "bench/measure/workload.hpp"
#include "kernels/device/thread_pool.hpp"
#include "kernels/kernel.hpp"
#include "kernels/oracle/oracle.hpp"

namespace attnbench::measure {

/// What the oracle says of a problem, in full or on a sample of it; made once, used for every kernel of a point.
struct Reference {
  bool complete = false;  // every row and key of the problem is in it
  std::vector<kernels::QueryRow> rows;
  std::vector<kernels::RowResult> row_results;
  std::int64_t key_batch = 0;
  std::int64_t key_head = 0;
  std::vector<std::int64_t> keys;  // of (key_batch, key_head)
  std::vector<kernels::KeyResult> key_results;
  kernels::OracleForward forward;    // when complete
  kernels::OracleBackward backward;  // when complete and the pass has one

  std::int64_t checked_rows() const;
};

/// Multiply-adds in double precision that one reference may cost; a fraction of a second on one core. A problem within
/// it is computed in full. Beyond, query rows are sampled: the first, the last, those at tile edges (multiples of 64,
/// and their neighbours), and random ones; and for dk and dv, keys of one (batch, kv head) chosen at random.
///
/// The sampled keys need the lse and delta of every query row that reads them. Where one whole head is over the budget
/// and the mask is causal, the keys are taken from the end of the sequence, which only the last queries see.
inline constexpr double kReferenceBudget = 3e8;

Reference make_reference(const kernels::Problem& problem, kernels::Pass pass, const Inputs& inputs, std::uint64_t seed,
                         kernels::ThreadPool& pool, double budget = kReferenceBudget);

/// The largest error of one tensor. `relative` is absolute over max(1, largest magnitude of the reference).
struct TensorError {
  std::string tensor;  // o, lse, dq, dk, dv
  double absolute = 0;
  double relative = 0;
  double tolerance = 0;
  std::string worst;  // what and where: "o[b 0, h 1, q 17, d 3] is 0.5, should be 0.25"
  bool wrong = false;

  bool passed() const { return !wrong && relative <= tolerance; }
};

/// All tensors of a pass.
struct Verdict {
  std::vector<TensorError> tensors;
  std::int64_t checked_rows = 0;

  bool passed() const;
  /// The tensor nearest to its bound, or furthest beyond it.
  const TensorError& worst() const;
  /// A sentence for the row when it did not pass.
  std::string reason() const;
};

/// The kernel's tolerance, or sixteen ulps (fp32) of the largest |lse| of the reference where that is more. Kernels
/// keep scores in fp32, where a logit of magnitude m is known to one ulp of m at best, and an error of n ulps in a
/// logit is the same relative error in its probability; the lse is within log(Sk) of the largest logit that
/// matters. 1.5e-5, and so no change, up to an lse of 16, which N(0, 1) inputs at the customary scale stay under; 1e-3
/// where it is 600.
kernels::Tolerance widen_for_logits(const kernels::Tolerance& tolerance, const Reference& reference);

/// Compares o and lse (forward), dq, dk, dv (backward) with the reference. Beside the reference's own sample, every
/// element of every output must have been written: a NaN (poison is one) where the inputs have none is wrong. An lse of
/// -inf must be exact. A NaN that the reference has too is right.
Verdict compare(const kernels::Problem& problem, kernels::Pass pass, const Reference& reference, const Outputs& outputs,
                const kernels::Tolerance& tolerance);

}  // namespace attnbench::measure
