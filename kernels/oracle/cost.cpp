// Counts of pairs times products.
#include "kernels/oracle/cost.hpp"

#include <algorithm>

#include "kernels/work.hpp"

namespace attnbench::kernels {

double oracle_cost(const Problem& p, Pass pass) {
  const double products = pass == Pass::kFwd ? kForwardProducts : kForwardProducts + kBackwardProducts;
  return visible_pairs(p) * static_cast<double>(p.batch) * static_cast<double>(p.heads) *
         static_cast<double>(p.head_dim) * products;
}

double oracle_head_cost(const Problem& p) {
  const std::int64_t group = p.heads / std::max<std::int64_t>(1, p.kv_heads);
  return visible_pairs(p) * static_cast<double>(p.head_dim) * static_cast<double>(group) * kForwardProducts;
}

bool is_checked_in_full(const Problem& p, Pass pass, double budget) {
  return oracle_cost(p, pass) <= budget || p.batch == 0 || p.heads == 0 || p.seq_q == 0 || p.seq_k == 0;
}

}  // namespace attnbench::kernels
