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

/// Least DRAM traffic: every input read once, every output written once, and in the backward delta, one fp32 value a
/// query row, written and read; a materialising kernel adds its passes over the fp32 Sq x Sk matrices (4 forward, 7
/// backward). Masked halves of a materialised matrix still move.
double model_bytes(const Problem& problem, Pass pass, bool materialises);

/// Bytes of inputs and outputs that exist during a pass (q, k, v, o, lse; dout, dq, dk, dv when a backward runs).
/// base::kMostCount where they do not fit 64 bits.
std::uint64_t tensor_bytes(const Problem& problem, Pass pass);

/// Elements that a tensor, or a matrix of scores, may have for kernels to be asked about it: 64 TiB of fp32. What
/// kernels make of such counts (padding of rows, copies for each of thousands of threads, offsets in bytes) then stays
/// far from the end of 64 bits.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 44;

/// No tensor has more than kMostElements, padded to multiples of 128 rows and 64 columns; nor, with `materialises`, has
/// the matrix of scores. Kernels are neither asked for a footprint nor prepared otherwise.
bool is_countable(const Problem& problem, bool materialises);

}  // namespace attnbench::kernels
