// Versions of the vendor libraries behind this backend's kernels.
#pragma once

#include <string>

namespace attnbench::kernels {

std::string cublas_version();
/// Empty when libcudnn.so.9 cannot be opened. Opens it.
std::string cudnn_version();

}  // namespace attnbench::kernels
