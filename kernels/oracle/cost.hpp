// What the oracle costs, and how much of it a check may spend. Pure.
#pragma once

#include "kernels/problem.hpp"

namespace attnbench::kernels {

/// Multiply-adds in double precision that a check may cost; a fraction of a second on one core. A problem within it is
/// computed in full, of a larger one a sample is.
inline constexpr double kReferenceBudget = 3e8;

/// Multiply-adds that the row statistics of the heads around one key/value head may cost, which sampled keys of a
/// backward need: three quarters of a minute on two cores, on which one launch of eight such heads takes twice that.
inline constexpr double kHeadBudget = 3e11;

/// Dot products of length D per visible pair: forward; o, lse and dq of one row; dk and dv beside the forward's.
inline constexpr double kForwardProducts = 2;
inline constexpr double kRowBackwardProducts = 4;
inline constexpr double kBackwardProducts = 7;

/// Multiply-adds of a whole pass.
double oracle_cost(const Problem& problem, Pass pass);

/// Multiply-adds of the statistics of every query row of the heads that read one key/value head.
double oracle_head_cost(const Problem& problem);

/// The whole of the pass is within the budget, or there is nothing to compute.
bool is_checked_in_full(const Problem& problem, Pass pass, double budget = kReferenceBudget);

}  // namespace attnbench::kernels
