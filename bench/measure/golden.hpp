// An attention problem with inputs and outputs from elsewhere, read from a safetensors file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/measure/inputs.hpp"
#include "bench/measure/safetensors.hpp"
#include "bench/measure/verify.hpp"
#include "kernels/kernel.hpp"
#include "kernels/problem.hpp"

namespace attnbench::measure {

/// Inputs q, k, v, dout as stored; outputs o, lse, dq, dk, dv as a complete reference. dtype is fp32 until chosen.
struct Golden {
  kernels::Problem problem;
  std::vector<double> q, k, v, dout;
  Reference reference;
};

/// What the file is, without reading it as attention: "attention" (it has q, k and v), "training" (tokens), or empty.
std::string golden_kind(const SafeTensors& file);

/// Metadata: batch, heads, kv_heads, seq_q, seq_k, head_dim, causal (0, 1), window_left (-1: none), scale.
///
/// Errors  kUnreadable: a value is missing or is no number, a tensor is missing or of another shape
base::Result<Golden> read_golden(const SafeTensors& file);

/// The inputs rounded to a dtype.
Inputs golden_inputs(const Golden& golden, kernels::Dtype dtype);

/// The kernel's tolerance, or what rounding in fp32 alone may cost where logits are large: scores are sums of D
/// products in fp32, whose rounding errors add up like a random walk to sqrt(D) 2^-24 times the sum of magnitudes, and
/// an absolute error of a logit is a relative error of its exp. With m the largest of scale * sum |q_d k_d| over
/// visible pairs, the bound is max(tolerance, sqrt(D) 2^-24 m): 4e-6 for N(0, 1) inputs at D = 64, where the tolerance
/// rules, 5e-4 where logits reach 500.
kernels::Tolerance golden_tolerance(const Golden& golden, kernels::Tolerance tolerance);

}  // namespace attnbench::measure
