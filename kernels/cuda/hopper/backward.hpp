// The wgmma backward as flash:wgmma takes it in: what it declines, what it needs, and how it is bound.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/kernel.hpp"

namespace attnbench::kernels::hopper {

/// Why the backward of a problem cannot be had, naming what takes it; empty when it can.
std::optional<std::string> backward_declines(const Problem& problem, const Target& target);

/// Scratch: fp32 sums of dQ, lse and delta for whole query tiles, and in deterministic mode a word per 64 x 64 of dQ.
std::size_t backward_workspace(const Problem& problem, bool deterministic);

/// Whether the copy engine and 16-byte stores take every tensor of the backward as it lies.
bool backward_takes(const AttentionArgs& args);

/// Binds the backward. Needs  backward_declines() is empty, backward_takes() holds, args.workspace of that size.
/// launch() answers kBwd alone.
base::Result<std::unique_ptr<PreparedKernel>> prepare_backward(const AttentionArgs& args, Device& device);

}  // namespace attnbench::kernels::hopper
