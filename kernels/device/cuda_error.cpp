// From a CUDA error code to the project's operating errors.
#include "kernels/device/cuda_error.hpp"

#include <string>

namespace attnbench::kernels {

bool is_sticky(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorCudartUnloading:
      return true;
    default:
      return false;
  }
}

base::Error cuda_error(cudaError_t code, std::string_view what) {
  using base::ErrorKind;
  const std::string text = std::string(what) + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")";
  if (is_sticky(code)) return {ErrorKind::kDeviceLost, text + "; the device cannot be used again in this process"};
  (void)cudaGetLastError();  // else the next unrelated call would report this one
  return {code == cudaErrorMemoryAllocation ? ErrorKind::kOutOfMemory : ErrorKind::kFailed, text};
}

base::Result<void> check_cuda(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return {};
  return tl::unexpected(cuda_error(code, what));
}

}  // namespace attnbench::kernels
