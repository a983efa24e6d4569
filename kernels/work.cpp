// The counts that work.hpp declares.
#include "kernels/work.hpp"

namespace attnbench::kernels {
namespace {

double pass_factor(Pass pass, double backward) {
  switch (pass) {
    case Pass::kFwd:
      return 1.0;
    case Pass::kBwd:
      return backward;
    case Pass::kFwdBwd:
      return 1.0 + backward;
  }
  return 0;
}

double forward_flops(const Problem& p) {
  return 4.0 * static_cast<double>(p.batch) * static_cast<double>(p.heads) * visible_pairs(p) *
         static_cast<double>(p.head_dim);
}

}  // namespace

double visible_pairs(const Problem& problem) {
  // Rows differ only near the mask's edges; a plain sum is exact and takes microseconds even at a million rows.
  double pairs = 0;
  for (std::int64_t i = 0; i < problem.seq_q; ++i) pairs += static_cast<double>(visible_keys(problem, i).count());
  return pairs;
}

double model_flops(const Problem& problem, Pass pass) { return forward_flops(problem) * pass_factor(pass, 2.5); }

double hardware_flops(const Problem& problem, Pass pass, bool materialises) {
  return forward_flops(problem) * pass_factor(pass, materialises ? 2.0 : 2.5);
}

double model_bytes(const Problem& p, Pass pass, bool materialises) {
  const double element = static_cast<double>(size_of(p.dtype));
  const double query = static_cast<double>(p.batch * p.heads * p.seq_q * p.head_dim) * element;
  const double key = static_cast<double>(p.batch * p.kv_heads * p.seq_k * p.head_dim) * element;
  const double row = static_cast<double>(p.batch * p.heads * p.seq_q) * 4.0;
  const double scores =
      4.0 * static_cast<double>(p.batch * p.heads) * static_cast<double>(p.seq_q) * static_cast<double>(p.seq_k);
  const double forward = 2 * query + 2 * key + row + (materialises ? 4 * scores : 0);
  // Reads q, k, v, o, dout, lse; writes dq, dk, dv; delta is written and read.
  const double backward = 4 * query + 4 * key + 3 * row + (materialises ? 7 * scores : 0);
  switch (pass) {
    case Pass::kFwd:
      return forward;
    case Pass::kBwd:
      return backward;
    case Pass::kFwdBwd:
      return forward + backward;
  }
  return 0;
}

std::uint64_t tensor_bytes(const Problem& p, Pass pass) {
  const std::uint64_t element = size_of(p.dtype);
  const std::uint64_t query = static_cast<std::uint64_t>(p.batch * p.heads * p.seq_q * p.head_dim) * element;
  const std::uint64_t key = static_cast<std::uint64_t>(p.batch * p.kv_heads * p.seq_k * p.head_dim) * element;
  const std::uint64_t lse = static_cast<std::uint64_t>(p.batch * p.heads * p.seq_q) * 4;
  const std::uint64_t forward = 2 * query + 2 * key + lse;
  return pass == Pass::kFwd ? forward : forward + 2 * query + 2 * key;
}

}  // namespace attnbench::kernels
