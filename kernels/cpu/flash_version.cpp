// Which Highway the flash kernel was compiled with.
#include "hwy/highway.h"
#include "kernels/cpu/libraries.hpp"

namespace attnbench::kernels {

std::string highway_version() {
  return std::to_string(HWY_MAJOR) + "." + std::to_string(HWY_MINOR) + "." + std::to_string(HWY_PATCH);
}

}  // namespace attnbench::kernels
