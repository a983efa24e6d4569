// Checks what a kernel wrote against attention in double precision, before anything is timed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/measure/inputs.hpp"
#include "bench/measure/workload.hpp"
#include "kernels/device/thread_pool.hpp"
#include "kernels/kernel.hpp"
#include "kernels/oracle/cost.hpp"
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
  std::int64_t first_checked_key = 0;  // no key before it is in the sample
  kernels::OracleForward forward;      // when complete
  kernels::OracleBackward backward;    // when complete and the pass has one

  std::int64_t checked_rows() const;
};

/// What one reference may cost, in multiply-adds in double precision.
struct ReferenceBudget {
  double whole = kernels::kReferenceBudget;  // of a problem computed in full, or of its sampled rows
  double head = kernels::kHeadBudget;        // of the statistics that sampled keys need
};

/// A problem within the budget is computed in full. Beyond, query rows are sampled: the first, the last, those at tile
/// edges (multiples of 64, and their neighbours), and random ones; and for dk and dv, keys of one (batch, kv head)
/// chosen at random: the first, the last, those at tile edges, and random ones of the whole sequence.
///
/// The sampled keys need the lse and delta of every query row that reads them. Only where one head's are over its own
/// budget and the mask is causal, the keys are taken from the end of the sequence, which the last queries alone see;
/// the verdict then says so.
Reference make_reference(const kernels::Problem& problem, kernels::Pass pass, const Inputs& inputs, std::uint64_t seed,
                         kernels::ThreadPool& pool, const ReferenceBudget& budget = {});

/// The largest error of one tensor. `relative` is absolute over max(1, largest magnitude of the reference). Both are
/// absent where the tensor, or the reference, has an element that no error can be computed of: NaN, an infinity.
struct TensorError {
  std::string tensor;  // o, lse, dq, dk, dv
  std::optional<double> absolute;
  std::optional<double> relative;
  double tolerance = 0;
  std::string worst;   // what and where: "o[b 0, h 1, q 17, d 3] is 0.5, should be 0.25"
  bool wrong = false;  // an element is NaN or infinite that should be something else

  bool passed() const { return !wrong && relative && *relative <= tolerance; }
  /// What is wrong with it, of a tensor that did not pass.
  std::string reason() const;
};

/// All tensors of a pass.
struct Verdict {
  std::vector<TensorError> tensors;
  std::int64_t checked_rows = 0;
  std::string caveat;  // a sentence where a part of a tensor was out of the sample's reach

  bool passed() const;
  /// The tensor nearest to its bound, or furthest beyond it.
  const TensorError& worst() const;
  /// A sentence for the row when it did not pass.
  std::string reason() const;
};

/// Bounds of the tensors of a pass.
struct Bounds {
  double o, lse, dq, dk, dv;
};

/// The largest bound that large logits can bring.
inline constexpr double kMostForLogits = 1e-3;

/// The largest |lse| that a reference holds; it is within log(Sk) of the largest logit that matters.
double largest_lse(const Reference& reference);

/// The kernel's tolerance; for o, dq, dk and dv sixteen ulps (fp32) of the largest |lse| where that is more, up to
/// kMostForLogits. Kernels keep scores in fp32, where a logit of magnitude m is known to one ulp of m at best, and an
/// error of n ulps in a logit is the same relative error in its probability, and in all that is computed of it. 1.5e-5,
/// and so no change, up to an lse of 16, which N(0, 1) inputs at the customary scale stay under; kMostForLogits from
/// 1024 up. The error of lse itself stays relative to its own magnitude, so its bound does not grow; nor does that of
/// 16-bit dtypes, whose tolerance is above kMostForLogits.
///
/// `lse` has to come from this program's own oracle: a bound must not rest on what is being checked.
Bounds bounds_for(const kernels::Tolerance& tolerance, double lse);

/// Compares o and lse (forward), dq, dk, dv (backward) with the reference. Beside the reference's own sample, every
/// element of every output must have been written: a NaN (poison is one) where the inputs have none is wrong. An lse of
/// -inf must be exact. A NaN that the reference has too is right.
Verdict compare(const kernels::Problem& problem, kernels::Pass pass, const Reference& reference, const Outputs& outputs,
                const Bounds& bounds);

}  // namespace attnbench::measure
