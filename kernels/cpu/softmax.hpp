// Row operations of the materialising kernels, on contiguous fp32. Written so that any compiler turns them into vector
// code: no library call, no branch, sums in eight explicit lanes.
#pragma once

#include <cstdint>

namespace attnbench::kernels {

/// Scales scores and turns them into weights in place; returns the natural log of the sum of exponentials.
///
/// Errors  exponentials within 2e-7 relative; a score beyond the range of fp32 saturates, NaN gives a row of NaN
float softmax_row(float* row, std::int64_t count, float scale);

/// dp becomes ds = p (dp - delta) scale with delta = sum of p dp.
void softmax_backward_row(const float* p, float* dp, std::int64_t count, float scale);

/// c[j] += sum over r of a[r] * b[r * stride + j], j in [0, columns).
void add_row_times_matrix(float* c, const float* a, const float* b, std::int64_t rows, std::int64_t stride,
                          std::int64_t columns);

/// True when no value is infinite or NaN.
bool all_finite(const float* values, std::int64_t count);

}  // namespace attnbench::kernels
