// Attention in plain double precision: the only truth that kernels are checked against. Slow and obvious on purpose.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device/thread_pool.hpp"
#include "kernels/problem.hpp"
#include "kernels/tensor.hpp"

namespace attnbench::kernels {

/// What the oracle reads: tensors in host memory, of any dtype and strides, widened to double without rounding. Give it
/// the values the kernel sees, already rounded to the problem's dtype. dout is read by the backward only.
struct OracleInputs {
  Tensor q, k, v;
  Tensor dout;
};

/// Shapes  o [B, H, Sq, D]   lse [B, H, Sq], natural log; dense, row-major
struct OracleForward {
  std::vector<double> o;
  std::vector<double> lse;
};

/// Shapes  dq [B, H, Sq, D]   dk, dv [B, Hkv, Sk, D]; dense, row-major
struct OracleBackward {
  std::vector<double> dq;
  std::vector<double> dk;
  std::vector<double> dv;
};

/// One query row of the problem.
struct QueryRow {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t query = 0;
};

/// Results for one query row. dq is empty unless the backward was asked for.
struct RowResult {
  std::vector<double> o;
  double lse = 0;
  std::vector<double> dq;
};

/// Results for one key.
struct KeyResult {
  std::vector<double> dk;
  std::vector<double> dv;
};

/// Rules for odd inputs, kept by the oracle and asked of every kernel:
///  - a query that sees no key has o = 0, lse = -inf, dq = 0; a key that no query sees has dk = dv = 0;
///  - values at masked positions are never read, so that NaN or infinity stored there reaches nothing;
///  - NaN in a visible logit makes o, lse and dq of that row NaN, and dk, dv of the keys that this row sees;
///  - a logit beyond the range of fp32, where kernels keep their scores, saturates at its largest magnitude, so that
///    equal overflowing logits give the mean of v and never infinity minus infinity.
///
/// Cost of each function below, in dot products of length D per visible pair: forward 2, backward 7 (the forward is
/// done again in double, nothing a kernel made is trusted). With a pool, rows and keys are spread over its threads;
/// results do not depend on the number of threads.
OracleForward oracle_forward(const Problem& problem, const OracleInputs& inputs, ThreadPool* pool = nullptr);
OracleBackward oracle_backward(const Problem& problem, const OracleInputs& inputs, ThreadPool* pool = nullptr);

/// o and lse (and dq when pass is not kFwd) of chosen query rows, in the order given. Each row costs its visible keys
/// alone: nothing of size Sq x Sk is computed.
std::vector<RowResult> oracle_rows(const Problem& problem, const OracleInputs& inputs, std::span<const QueryRow> rows,
                                   Pass pass, ThreadPool* pool = nullptr);

/// dk and dv of chosen keys of one (batch, kv head), in the order given. The lse and delta of every query row that
/// reads this kv head are computed first, in full: 2 dot products per visible pair of (H / Hkv) heads.
std::vector<KeyResult> oracle_keys(const Problem& problem, const OracleInputs& inputs, std::int64_t batch,
                                   std::int64_t kv_head, std::span<const std::int64_t> keys,
                                   ThreadPool* pool = nullptr);

}  // namespace attnbench::kernels
