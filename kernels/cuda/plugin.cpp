// What libattnbench_cuda.so exports: the CUDA backend and the build it belongs to.
#include "kernels/cuda/plugin.hpp"

#include <cuda_runtime_api.h>

#include "kernels/catalog.hpp"
#include "kernels/device/cuda_device.hpp"

namespace attnbench::kernels {

std::span<const KernelInfo* const> cuda_kernels();

namespace {

LibraryVersions libraries() {
  int runtime = 0;
  (void)cudaRuntimeGetVersion(&runtime);
  LibraryVersions versions{{"cuda", std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10)},
                           {"cublas", cublas_version()}};
  if (std::string cudnn = cudnn_version(); !cudnn.empty()) versions.emplace_back("cudnn", std::move(cudnn));
  return versions;
}

base::Result<std::vector<DeviceFacts>> devices() { return cuda_facts(libraries()); }

base::Result<std::unique_ptr<Device>> open(int ordinal) { return CudaDevice::open(ordinal, libraries()); }

}  // namespace
}  // namespace attnbench::kernels

extern "C" __attribute__((visibility("default"))) const attnbench::kernels::PluginEntry* attnbench_cuda_backend() {
  using namespace attnbench::kernels;
  static const Backend backend{DeviceKind::kCuda, "cuda",       &devices,        &open,
                               &cuda_kernels,     &cuda_gemm(), &cuda_layer_ops, &cuda_shard_ops};
  static const PluginEntry entry{ATTNBENCH_BUILD_ID, &backend};
  return &entry;
}
