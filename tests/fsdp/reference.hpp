// Layers in double precision, written as their formulas: what the gradients are checked against.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fsdp/layers.hpp"

namespace attnbench::fsdp {

using Values = std::vector<double>;

/// A layer's inputs and parameters; the forward gives its output, or the loss alone in one element.
struct ReferenceCall {
  TokenShape shape;
  std::vector<Values> params;
  Values in;
  std::vector<std::int32_t> tokens, targets;
};
using ReferenceForward = std::function<Values(const ReferenceCall&)>;

ReferenceForward reference_embedding(std::int64_t width);
ReferenceForward reference_block(const BlockConfig& config);
ReferenceForward reference_norm(std::int64_t width, double eps);
ReferenceForward reference_linear(std::int64_t in, std::int64_t out);
ReferenceForward reference_relu();
/// params: gain and weight, or the weight alone where not `normed`.
ReferenceForward reference_head(std::int64_t width, std::int64_t vocab, bool normed, double eps);

/// The gradient of sum(out * dout) by central differences of the reference, with respect to `values`, which is a part
/// of `call`. In double precision a step of 1e-5 leaves an error below 1e-9 of the largest.
Values difference_gradient(const ReferenceForward& forward, ReferenceCall& call, Values& values, const Values& dout);

}  // namespace attnbench::fsdp
