// Chooses what to compute in double precision, within a budget.
#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "bench/base/rng.hpp"
#include "bench/measure/verify.hpp"
#include "kernels/oracle/cost.hpp"

namespace attnbench::measure {
namespace {

using kernels::KeyRange;
using kernels::Pass;
using kernels::Problem;
using kernels::QueryRow;

constexpr std::int64_t kTile = 64;      // the tile edge that most kernels have, or a divisor of it
constexpr std::int64_t kMostRows = 96;  // per point; the budget may allow fewer
constexpr std::int64_t kMostKeys = 32;  // of one head
constexpr std::int64_t kLeastRows = 8;

/// Rows worth looking at in any sequence, then random ones, all spread over batches and heads.
std::vector<QueryRow> sample_rows(const Problem& p, Pass pass, std::uint64_t seed, double budget) {
  const double per_row = static_cast<double>(p.seq_k) * static_cast<double>(p.head_dim) *
                         (pass == Pass::kFwd ? kernels::kForwardProducts : kernels::kRowBackwardProducts);
  const auto affordable = static_cast<std::int64_t>(std::min(1e9, budget / std::max(1.0, per_row)));
  const std::int64_t wanted = std::min({std::clamp(affordable, kLeastRows, kMostRows), p.batch * p.heads * p.seq_q});
  std::vector<std::int64_t> queries{0, p.seq_q - 1, kTile - 1, kTile, p.seq_q / kTile * kTile};
  const base::Rng rng(seed, 101);
  std::uint64_t next = 0;
  const auto random_below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(rng.uniform(next++) * static_cast<double>(bound));
  };
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> taken;
  // Collisions are rare and bounded: a few tries more than rows are wanted.
  for (std::int64_t i = 0; i < 4 * wanted && static_cast<std::int64_t>(taken.size()) < wanted; ++i) {
    const bool edge = i < static_cast<std::int64_t>(queries.size());
    const std::int64_t query = edge ? queries[static_cast<std::size_t>(i)] : random_below(p.seq_q);
    if (query < 0 || query >= p.seq_q) continue;
    taken.insert({random_below(p.batch), random_below(p.heads), query});
  }
  std::vector<QueryRow> rows;
  for (const auto& [batch, head, query] : taken) rows.push_back({batch, head, query});
  return rows;
}

std::vector<std::int64_t> sample_keys(std::int64_t first, std::int64_t end, std::uint64_t seed) {
  std::set<std::int64_t> keys{first, end - 1};
  for (const std::int64_t edge : {kTile - 1, kTile, end / kTile * kTile}) {
    if (edge >= first && edge < end) keys.insert(edge);
  }
  const base::Rng rng(seed, 102);
  const std::int64_t wanted = std::min(kMostKeys, end - first);
  for (std::uint64_t i = 0; i < 256 && static_cast<std::int64_t>(keys.size()) < wanted; ++i) {
    keys.insert(first + static_cast<std::int64_t>(rng.uniform(i) * static_cast<double>(end - first)));
  }
  return {keys.begin(), keys.end()};
}

/// The view that starts at query `first`.
kernels::Tensor from_query(kernels::Tensor tensor, std::int64_t first) {
  const auto bytes = static_cast<std::int64_t>(kernels::size_of(tensor.dtype));
  tensor.data = static_cast<unsigned char*>(tensor.data) + first * tensor.stride[2] * bytes;
  tensor.extent[2] -= first;
  return tensor;
}

/// dk and dv of sampled keys. They need the statistics of every query that sees them, of an early key of a causal
/// problem those of all. Where that is over the head's budget such a problem is cut to its last queries, which alone
/// see the last keys; alignment is at the bottom right, so the cut problem is one of the same kind.
void add_keys(Reference& reference, const Problem& problem, const Inputs& inputs, std::uint64_t seed,
              kernels::ThreadPool& pool, const ReferenceBudget& budget) {
  const base::Rng rng(seed, 103);
  reference.key_batch = static_cast<std::int64_t>(rng.uniform(0) * static_cast<double>(problem.batch));
  reference.key_head = static_cast<std::int64_t>(rng.uniform(1) * static_cast<double>(problem.kv_heads));
  Problem cut = problem;
  kernels::OracleInputs source = inputs.oracle();
  std::int64_t first_key = 0;
  if (problem.causal && kernels::oracle_head_cost(problem) > budget.head) {
    const double per_query = static_cast<double>(problem.seq_k) * static_cast<double>(problem.head_dim) *
                             static_cast<double>(problem.heads / problem.kv_heads) * kernels::kForwardProducts;
    const auto affordable = static_cast<std::int64_t>(budget.head / std::max(1.0, per_query));
    cut.seq_q = std::clamp<std::int64_t>(affordable, std::min<std::int64_t>(kTile + 1, problem.seq_q), problem.seq_q);
    const std::int64_t first = problem.seq_q - cut.seq_q;
    source.q = from_query(source.q, first);
    source.dout = from_query(source.dout, first);
    first_key = std::max<std::int64_t>(0, problem.seq_k - cut.seq_q);
    if (first_key > 0) reference.first_checked_key = first_key;
  }
  reference.keys = sample_keys(first_key, problem.seq_k, seed);
  reference.key_results =
      kernels::oracle_keys(cut, source, reference.key_batch, reference.key_head, reference.keys, &pool);
}

}  // namespace

std::int64_t Reference::checked_rows() const {
  if (!complete) return static_cast<std::int64_t>(rows.size() + keys.size());
  return static_cast<std::int64_t>(forward.lse.size());
}

Reference make_reference(const Problem& problem, Pass pass, const Inputs& inputs, std::uint64_t seed,
                         kernels::ThreadPool& pool, const ReferenceBudget& budget) {
  Reference reference;
  if (kernels::is_checked_in_full(problem, pass, budget.whole)) {
    reference.complete = true;
    reference.forward = kernels::oracle_forward(problem, inputs.oracle(), &pool);
    if (pass != Pass::kFwd) reference.backward = kernels::oracle_backward(problem, inputs.oracle(), &pool);
    return reference;
  }
  reference.rows = sample_rows(problem, pass, seed, budget.whole);
  reference.row_results = kernels::oracle_rows(problem, inputs.oracle(), reference.rows, pass, &pool);
  if (pass != Pass::kFwd) add_keys(reference, problem, inputs, seed, pool, budget);
  return reference;
}

}  // namespace attnbench::measure
