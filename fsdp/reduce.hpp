// Adds what the ranks sent, in fp32.
#pragma once

#include <cstdint>
#include <span>

#include "fsdp/layer.hpp"

namespace attnbench::fsdp {

/// out = parts[0] + parts[1] + ... added from left to right, or out + parts[0] + ... with `accumulate`. A part may be
/// `out` itself.
void sum_in_order(float* out, bool accumulate, std::span<const void* const> parts, Dtype wire, std::int64_t count);

}  // namespace attnbench::fsdp
