// Versions of the libraries that CPU kernels call; each is answered by the one file that may include its headers.
#pragma once

#include <string>

namespace attnbench::kernels {

std::string onednn_version();
std::string highway_version();

}  // namespace attnbench::kernels
