// FLOP and byte formulas: the one place that counts work. Pure.
#pragma once

#include <cstdint>

#include "kernels/problem.hpp"

namespace attnbench::kernels {

/// Visible (query, key) pairs of one head, exact for causal and windows.
double visible_pairs(const Problem& problem);

/// Model FLOPs of a pass: 4 B H pairs D forward (two products, multiply and add counted), 2.5 times that backward
/// (five products, the recomputed one included), 3.5 for both. The same numerator for every kernel of a point.
double model_flops(const Problem& problem, Pass pass);

/// FLOPs the kernel executes in its products: as model_flops, but a materialising backward has four products (2.0).
double hardware_flops(const Problem& problem, Pass pass, bool materialises);

/// Least DRAM traffic: every input read once, every output written once; a materialising kernel adds its passes over
/// the fp32 Sq x Sk matrices (4 forward, 7 backward). Masked halves of a materialised matrix still move.
double model_bytes(const Problem& problem, Pass pass, bool materialises);

/// Bytes of inputs and outputs that exist during a pass (q, k, v, o, lse; dout, dq, dk, dv when a backward runs).
std::uint64_t tensor_bytes(const Problem& problem, Pass pass);

}  // namespace attnbench::kernels
