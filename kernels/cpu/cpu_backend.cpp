// The processor of this machine as a backend: one device, always there.
#include "kernels/catalog.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::kernels {

std::span<const KernelInfo* const> cpu_kernels();

namespace {

base::Result<std::vector<DeviceFacts>> cpu_devices() { return std::vector<DeviceFacts>{cpu_facts()}; }

base::Result<std::unique_ptr<Device>> open_cpu(int) { return std::make_unique<CpuDevice>(cpu_facts().cores); }

}  // namespace

const Backend& cpu_backend() {
  static const Backend backend{DeviceKind::kCpu, "cpu", &cpu_devices, &open_cpu, &cpu_kernels};
  return backend;
}

}  // namespace attnbench::kernels
