// The mathematics of kernels/problem.hpp, written down once in double.
#include "kernels/oracle/oracle.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "bench/base/error.hpp"

namespace attnbench::kernels {
namespace {

using Row = std::vector<double>;

template <typename T>
void widen(const Tensor& tensor, std::int64_t offset, double* target) {
  const T* source = static_cast<const T*>(tensor.data) + offset;
  for (std::int64_t d = 0; d < tensor.extent[3]; ++d) {
    target[d] = static_cast<double>(to_float(source[d * tensor.stride[3]]));
  }
}

void load_row(const Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i, double* target) {
  const std::int64_t offset = b * tensor.stride[0] + h * tensor.stride[1] + i * tensor.stride[2];
  switch (tensor.dtype) {
    case Dtype::kFp32:
      return widen<float>(tensor, offset, target);
    case Dtype::kBf16:
      return widen<Bf16>(tensor, offset, target);
    case Dtype::kFp16:
      return widen<Fp16>(tensor, offset, target);
  }
}

/// One head of a tensor as rows of doubles: converted all at once, or each row when it is read (a few rows of a long
/// head). Safe to read from several threads, each with a scratch row of its own.
class Head {
 public:
  enum class Convert { kAll, kOnRead };

  Head(const Tensor& tensor, std::int64_t b, std::int64_t h, Convert convert) : tensor_(&tensor), b_(b), h_(h) {
    if (convert == Convert::kOnRead) return;
    values_.resize(static_cast<std::size_t>(tensor.extent[2] * tensor.extent[3]));
    for (std::int64_t i = 0; i < tensor.extent[2]; ++i) load_row(tensor, b, h, i, &values_[position(i)]);
  }

  const double* row(std::int64_t i, Row& scratch) const {
    if (!values_.empty()) return &values_[position(i)];
    scratch.resize(static_cast<std::size_t>(tensor_->extent[3]));
    load_row(*tensor_, b_, h_, i, scratch.data());
    return scratch.data();
  }

 private:
  std::size_t position(std::int64_t i) const { return static_cast<std::size_t>(i * tensor_->extent[3]); }

  const Tensor* tensor_;
  std::int64_t b_, h_;
  Row values_;
};

/// Sixteen partial sums, so that the compiler may use vector registers without reordering a sum behind our back.
[[gnu::always_inline]] inline double plain_dot(const double* a, const double* b, std::int64_t n) {
  constexpr std::int64_t kLanes = 16;
  std::array<double, kLanes> lanes{};
  std::int64_t d = 0;
  for (; d + kLanes <= n; d += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[static_cast<std::size_t>(lane)] += a[d + lane] * b[d + lane];
    }
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  for (; d < n; ++d) lanes[0] += a[d] * b[d];
  return lanes[0];
}

using Dot = double (*)(const double* a, const double* b, std::int64_t n);

double dot_anywhere(const double* a, const double* b, std::int64_t n) { return plain_dot(a, b, n); }

#if defined(__x86_64__)
/// The same with wider registers: most of what a check costs is here.
[[gnu::target("avx2,fma")]] double dot_avx2(const double* a, const double* b, std::int64_t n) {
  return plain_dot(a, b, n);
}
#endif

Dot best_dot() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &dot_avx2;
#endif
  return &dot_anywhere;
}

double dot(const double* a, const double* b, std::int64_t n) {
  static const Dot best = best_dot();
  return best(a, b, n);
}

void add_scaled(double* target, double factor, const double* source, std::int64_t n) {
  for (std::int64_t d = 0; d < n; ++d) target[d] += factor * source[d];
}

double logit(const Problem& problem, const double* q, const double* k) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return std::clamp(static_cast<double>(problem.scale) * dot(q, k, problem.head_dim), -kLargest, kLargest);
}

/// Softmax statistics of one row. The weight of a logit is exp(s - max) / sum: going through lse instead would lose
/// log(sum) when the logits are huge.
struct Statistics {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double delta = 0;  // sum of p (dout . v), which is dout . o

  double lse() const { return max + std::log(sum); }
  double weight(double s) const { return std::exp(s - max) / sum; }
};

Statistics statistics_of(const Row& logits) {
  Statistics row;
  for (const double s : logits) row.max = std::max(row.max, s);
  for (const double s : logits) row.sum += std::exp(s - row.max);
  return row;
}

/// One query row and the keys and values that its head reads.
struct RowInputs {
  std::int64_t query = 0;
  const double* q = nullptr;
  const double* dout = nullptr;  // null: forward only
  const Head* k = nullptr;
  const Head* v = nullptr;
};

Row logits_of(const Problem& problem, const RowInputs& in) {
  const KeyRange range = visible_keys(problem, in.query);
  Row logits;
  logits.reserve(static_cast<std::size_t>(range.count()));
  Row scratch;
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    logits.push_back(logit(problem, in.q, in.k->row(j, scratch)));
  }
  return logits;
}

/// The whole of one query row: o and lse, and dq when dout is given.
RowResult row_of(const Problem& problem, const RowInputs& in) {
  const std::int64_t dim = problem.head_dim;
  const KeyRange range = visible_keys(problem, in.query);
  const Row logits = logits_of(problem, in);
  Statistics row = statistics_of(logits);
  RowResult result{Row(static_cast<std::size_t>(dim), 0.0), -std::numeric_limits<double>::infinity(), {}};
  if (in.dout != nullptr) result.dq.assign(static_cast<std::size_t>(dim), 0.0);
  if (range.count() == 0) return result;
  result.lse = row.lse();
  Row scratch;
  Row dp;
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const double p = row.weight(logits[static_cast<std::size_t>(j - range.begin)]);
    const double* v = in.v->row(j, scratch);
    add_scaled(result.o.data(), p, v, dim);
    if (in.dout == nullptr) continue;
    dp.push_back(dot(in.dout, v, dim));
    row.delta += p * dp.back();
  }
  if (in.dout == nullptr) return result;
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const auto index = static_cast<std::size_t>(j - range.begin);
    const double ds = row.weight(logits[index]) * (dp[index] - row.delta) * static_cast<double>(problem.scale);
    add_scaled(result.dq.data(), ds, in.k->row(j, scratch), dim);
  }
  return result;
}

/// The query heads that read one key/value head, with the statistics of all their rows.
struct QueryHead {
  Head q;
  Head dout;
  std::vector<Statistics> rows;
};

/// Statistics of the rows [first, end) of `head`, delta included. Keys and values are read once for all of them, and
/// there is one exponential a pair: whole heads of long sequences come through here.
void add_statistics(const Problem& problem, QueryHead& head, std::int64_t first, std::int64_t end, const Head& k,
                    const Head& v) {
  std::vector<Row> logits(static_cast<std::size_t>(end - first));
  KeyRange all{problem.seq_k, 0};
  for (std::int64_t i = first; i < end; ++i) {
    const KeyRange seen = visible_keys(problem, i);
    logits[static_cast<std::size_t>(i - first)].reserve(static_cast<std::size_t>(seen.count()));
    all = {std::min(all.begin, seen.begin), std::max(all.end, seen.end)};
  }
  Row scratch;
  Row row_scratch;
  for (std::int64_t j = all.begin; j < all.end; ++j) {
    const double* key = k.row(j, scratch);
    for (std::int64_t i = first; i < end; ++i) {
      const KeyRange seen = visible_keys(problem, i);
      if (j < seen.begin || j >= seen.end) continue;
      const double s = logit(problem, head.q.row(i, row_scratch), key);
      logits[static_cast<std::size_t>(i - first)].push_back(s);
      double& max = head.rows[static_cast<std::size_t>(i)].max;
      max = std::max(max, s);
    }
  }
  for (std::int64_t j = all.begin; j < all.end; ++j) {
    const double* value = v.row(j, scratch);
    for (std::int64_t i = first; i < end; ++i) {
      const KeyRange seen = visible_keys(problem, i);
      if (j < seen.begin || j >= seen.end) continue;
      Statistics& row = head.rows[static_cast<std::size_t>(i)];
      const Row& own = logits[static_cast<std::size_t>(i - first)];
      const double e = std::exp(own[static_cast<std::size_t>(j - seen.begin)] - row.max);
      row.sum += e;
      row.delta += e * dot(head.dout.row(i, row_scratch), value, problem.head_dim);
    }
  }
  for (std::int64_t i = first; i < end; ++i) {
    if (visible_keys(problem, i).count() == 0) continue;
    Statistics& row = head.rows[static_cast<std::size_t>(i)];
    row.delta /= row.sum;
  }
}

/// The whole of one key.
KeyResult key_of(const Problem& problem, std::int64_t key, const double* k, const double* v,
                 const std::vector<QueryHead>& heads) {
  const std::int64_t dim = problem.head_dim;
  const KeyRange range = visible_queries(problem, key);
  KeyResult result{Row(static_cast<std::size_t>(dim), 0.0), Row(static_cast<std::size_t>(dim), 0.0)};
  Row q_scratch;
  Row dout_scratch;
  for (const QueryHead& head : heads) {
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const Statistics& row = head.rows[static_cast<std::size_t>(i)];
      const double* q = head.q.row(i, q_scratch);
      const double* dout = head.dout.row(i, dout_scratch);
      const double p = row.weight(logit(problem, q, k));
      add_scaled(result.dv.data(), p, dout, dim);
      const double ds = p * (dot(dout, v, dim) - row.delta) * static_cast<double>(problem.scale);
      add_scaled(result.dk.data(), ds, q, dim);
    }
  }
  return result;
}

void for_each(ThreadPool* pool, std::int64_t items, const std::function<void(std::int64_t)>& body) {
  if (pool != nullptr) return pool->parallel_for(items, [&](std::int64_t item, int) { body(item); });
  for (std::int64_t item = 0; item < items; ++item) body(item);
}

std::int64_t group_of(const Problem& problem) { return problem.kv_heads == 0 ? 1 : problem.heads / problem.kv_heads; }

/// Rows whose logits are kept at a time: 4 MiB at 64k keys, and an eighth of the traffic of a row alone.
constexpr std::int64_t kRowsTogether = 8;

/// Rows handed out together: enough work that handing out is not felt.
constexpr std::int64_t kRowsPerBlock = 32;

void for_each_row(ThreadPool* pool, std::int64_t rows, const std::function<void(std::int64_t)>& body) {
  for_each(pool, (rows + kRowsPerBlock - 1) / kRowsPerBlock, [&](std::int64_t block) {
    const std::int64_t end = std::min(rows, (block + 1) * kRowsPerBlock);
    for (std::int64_t i = block * kRowsPerBlock; i < end; ++i) body(i);
  });
}

/// Computes every query row and hands each to `store`, which is called from the pool's threads.
void all_rows(const Problem& problem, const OracleInputs& inputs, bool backward, ThreadPool* pool,
              const std::function<void(std::int64_t row, const RowResult&)>& store) {
  for (std::int64_t bh = 0; bh < problem.batch * problem.heads; ++bh) {
    const std::int64_t b = bh / problem.heads;
    const std::int64_t h = bh % problem.heads;
    const Head k(inputs.k, b, h / group_of(problem), Head::Convert::kAll);
    const Head v(inputs.v, b, h / group_of(problem), Head::Convert::kAll);
    const Head q(inputs.q, b, h, Head::Convert::kOnRead);
    const Head dout(backward ? inputs.dout : inputs.q, b, h, Head::Convert::kOnRead);
    for_each_row(pool, problem.seq_q, [&](std::int64_t i) {
      Row q_scratch;
      Row dout_scratch;
      const RowInputs in{i, q.row(i, q_scratch), backward ? dout.row(i, dout_scratch) : nullptr, &k, &v};
      store(bh * problem.seq_q + i, row_of(problem, in));
    });
  }
}

void copy_to(const Row& row, Row& target, std::int64_t index) {
  std::copy(row.begin(), row.end(), target.begin() + index * static_cast<std::int64_t>(row.size()));
}

std::vector<QueryHead> query_heads(const Problem& problem, const OracleInputs& inputs, std::int64_t batch,
                                   std::int64_t kv_head, const Head& k, const Head& v, ThreadPool* pool) {
  std::vector<QueryHead> heads;
  for (std::int64_t h = kv_head * group_of(problem); h < (kv_head + 1) * group_of(problem); ++h) {
    QueryHead head{Head(inputs.q, batch, h, Head::Convert::kAll), Head(inputs.dout, batch, h, Head::Convert::kAll), {}};
    head.rows.resize(static_cast<std::size_t>(problem.seq_q));
    for_each(pool, (problem.seq_q + kRowsTogether - 1) / kRowsTogether, [&](std::int64_t block) {
      const std::int64_t first = block * kRowsTogether;
      add_statistics(problem, head, first, std::min(problem.seq_q, first + kRowsTogether), k, v);
    });
    heads.push_back(std::move(head));
  }
  return heads;
}

}  // namespace

OracleForward oracle_forward(const Problem& problem, const OracleInputs& inputs, ThreadPool* pool) {
  OracleForward result;
  result.lse.resize(static_cast<std::size_t>(problem.batch * problem.heads * problem.seq_q));
  result.o.resize(result.lse.size() * static_cast<std::size_t>(problem.head_dim));
  all_rows(problem, inputs, false, pool, [&](std::int64_t index, const RowResult& row) {
    copy_to(row.o, result.o, index);
    result.lse[static_cast<std::size_t>(index)] = row.lse;
  });
  return result;
}

OracleBackward oracle_backward(const Problem& problem, const OracleInputs& inputs, ThreadPool* pool) {
  OracleBackward result;
  const std::int64_t dim = problem.head_dim;
  result.dq.resize(static_cast<std::size_t>(problem.batch * problem.heads * problem.seq_q * dim));
  result.dk.resize(static_cast<std::size_t>(problem.batch * problem.kv_heads * problem.seq_k * dim));
  result.dv.resize(result.dk.size());
  all_rows(problem, inputs, true, pool,
           [&](std::int64_t index, const RowResult& row) { copy_to(row.dq, result.dq, index); });
  std::vector<std::int64_t> keys(static_cast<std::size_t>(problem.seq_k));
  std::iota(keys.begin(), keys.end(), std::int64_t{0});
  for (std::int64_t bh = 0; bh < problem.batch * problem.kv_heads; ++bh) {
    const auto results = oracle_keys(problem, inputs, bh / problem.kv_heads, bh % problem.kv_heads, keys, pool);
    for (std::int64_t j = 0; j < problem.seq_k; ++j) {
      copy_to(results[static_cast<std::size_t>(j)].dk, result.dk, bh * problem.seq_k + j);
      copy_to(results[static_cast<std::size_t>(j)].dv, result.dv, bh * problem.seq_k + j);
    }
  }
  return result;
}

std::vector<RowResult> oracle_rows(const Problem& problem, const OracleInputs& inputs, std::span<const QueryRow> rows,
                                   Pass pass, ThreadPool* pool) {
  std::vector<RowResult> results(rows.size());
  for_each(pool, static_cast<std::int64_t>(rows.size()), [&](std::int64_t item) {
    const QueryRow& at = rows[static_cast<std::size_t>(item)];
    ATTNBENCH_ENSURE(at.batch >= 0 && at.batch < problem.batch && at.head >= 0 && at.head < problem.heads &&
                         at.query >= 0 && at.query < problem.seq_q,
                     "oracle_rows was asked for a row outside the problem");
    const Head k(inputs.k, at.batch, at.head / group_of(problem), Head::Convert::kOnRead);
    const Head v(inputs.v, at.batch, at.head / group_of(problem), Head::Convert::kOnRead);
    Row q(static_cast<std::size_t>(problem.head_dim));
    Row dout(q.size());
    load_row(inputs.q, at.batch, at.head, at.query, q.data());
    if (pass != Pass::kFwd) load_row(inputs.dout, at.batch, at.head, at.query, dout.data());
    const RowInputs in{at.query, q.data(), pass != Pass::kFwd ? dout.data() : nullptr, &k, &v};
    results[static_cast<std::size_t>(item)] = row_of(problem, in);
  });
  return results;
}

std::vector<KeyResult> oracle_keys(const Problem& problem, const OracleInputs& inputs, std::int64_t batch,
                                   std::int64_t kv_head, std::span<const std::int64_t> keys, ThreadPool* pool) {
  ATTNBENCH_ENSURE(batch >= 0 && batch < problem.batch && kv_head >= 0 && kv_head < problem.kv_heads,
                   "oracle_keys was asked for a head outside the problem");
  const Head k(inputs.k, batch, kv_head, Head::Convert::kAll);
  const Head v(inputs.v, batch, kv_head, Head::Convert::kAll);
  const std::vector<QueryHead> heads = query_heads(problem, inputs, batch, kv_head, k, v, pool);
  std::vector<KeyResult> results(keys.size());
  for_each(pool, static_cast<std::int64_t>(keys.size()), [&](std::int64_t item) {
    const std::int64_t key = keys[static_cast<std::size_t>(item)];
    ATTNBENCH_ENSURE(key >= 0 && key < problem.seq_k, "oracle_keys was asked for a key outside the problem");
    Row k_scratch;
    Row v_scratch;
    results[static_cast<std::size_t>(item)] = key_of(problem, key, k.row(key, k_scratch), v.row(key, v_scratch), heads);
  });
  return results;
}

}  // namespace attnbench::kernels
