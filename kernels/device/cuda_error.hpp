// From a CUDA error code to the project's operating errors.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "bench/base/error.hpp"

namespace attnbench::kernels {

/// True for errors that leave the context unusable: every later call fails with the same code.
bool is_sticky(cudaError_t code);

/// Errors  kOutOfMemory: cleared, the next call works; kDeviceLost: sticky; kFailed: cleared, anything else.
/// The message is `what` (a sentence's beginning: what was tried) and cudaGetErrorString's text.
base::Result<void> check_cuda(cudaError_t code, std::string_view what);

/// The error of check_cuda, for a code that is known not to be success.
base::Error cuda_error(cudaError_t code, std::string_view what);

}  // namespace attnbench::kernels
