// The words of --device as devices and the kernels written for them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/plan/plan.hpp"

namespace attnbench::cli {

/// auto: the first CUDA device if there is one, else the CPU. cuda: the first. cuda:N that one, cuda:all every one.
/// Asks backends for facts; opens no device.
///
/// Errors  kUsage: a word that names no device, with the nearest. kAbsent: a backend or an ordinal that is not here.
base::Result<std::vector<plan::Candidate>> find_candidates(std::span<const std::string> devices);

}  // namespace attnbench::cli
