// What the engine does itself: casts into and out of what travels, the gradient's norm, and the optimizer's update.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/base/error.hpp"
#include "fsdp/layer.hpp"
#include "kernels/shard_ops.hpp"

namespace attnbench::fsdp {

using Ops = kernels::ShardOps;

/// For arrays of up to `largest` elements.
///
/// Errors  kAbsent: the device's backend has none
base::Result<std::unique_ptr<Ops>> make_ops(Device& device, std::int64_t largest);

}  // namespace attnbench::fsdp
