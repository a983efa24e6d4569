// The processor of this machine as a backend: one device, always there.
#include "kernels/catalog.hpp"
#include "kernels/cpu/libraries.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::kernels {

std::span<const KernelInfo* const> cpu_kernels();
const GemmLibrary& cpu_gemm();
base::Result<std::unique_ptr<LayerOps>> make_cpu_layer_ops(Device& device);

namespace {

DeviceFacts facts_with_libraries() {
  DeviceFacts facts = cpu_facts();
  facts.libraries = {{"oneDNN", onednn_version()}, {"Highway", highway_version()}};
  return facts;
}

base::Result<std::vector<DeviceFacts>> cpu_devices() { return std::vector<DeviceFacts>{facts_with_libraries()}; }

base::Result<std::unique_ptr<Device>> open_cpu(int ordinal) {
  if (ordinal != 0) {
    return base::fail(base::ErrorKind::kAbsent,
                      "there is one cpu device, so cpu:" + std::to_string(ordinal) + " does not exist; use cpu");
  }
  DeviceFacts facts = facts_with_libraries();
  const int cores = facts.cores;
  return std::make_unique<CpuDevice>(cores, std::move(facts));
}

}  // namespace

const Backend& cpu_backend() {
  static const Backend backend{DeviceKind::kCpu, "cpu",       &cpu_devices,       &open_cpu,
                               &cpu_kernels,     &cpu_gemm(), &make_cpu_layer_ops};
  return backend;
}

}  // namespace attnbench::kernels
