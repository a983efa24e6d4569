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

}  // namespace attnbench::measure
