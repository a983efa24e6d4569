// Row operations of the blas kernel between its products, on contiguous rows; compiled once per instruction set and
// chosen at run time, as flash is, so that the two differ by their algorithm alone.
#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"

namespace attnbench::kernels {

/// Scales scores and turns them into weights in place; returns the natural log of the sum of exponentials.
///
/// Errors  exponentials within 4e-7 of the largest; a score beyond the range of fp32 saturates, NaN gives a row of NaN
float softmax_row(float* row, std::int64_t count, float scale);

/// dp becomes ds = p (dp - delta) scale with delta = sum of p dp.
void softmax_backward_row(const float* p, float* dp, std::int64_t count, float scale);

/// Rounds to nearest even; NaN stays NaN. `to` may begin where `from` does.
void narrow_row(const float* from, std::int64_t count, Bf16* to);

}  // namespace attnbench::kernels
