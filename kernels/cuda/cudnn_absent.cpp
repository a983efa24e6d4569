// Stands in for cudnn.cpp in a build without cuDNN's headers.
#include "kernels/cuda/plugin.hpp"

namespace attnbench::kernels {

std::string cudnn_version() { return {}; }

}  // namespace attnbench::kernels
