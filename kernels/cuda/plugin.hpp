// Versions of the vendor libraries behind this backend's kernels.
#pragma once

#include <string>

namespace attnbench::kernels {

std::string cublas_version();

}  // namespace attnbench::kernels
