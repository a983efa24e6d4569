// Clocks, limits and throttle reasons from NVML, opened at run time; every answer is absent where NVML is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace attnbench::kernels {

/// One GPU as NVML sees it.
class NvmlDevice {
 public:
  /// An object without answers when the library, the driver or the device is missing.
  static NvmlDevice find(const std::string& pci_bus_id);

  std::optional<double> sm_clock_mhz() const;
  std::optional<double> sm_clock_max_mhz() const;
  std::optional<double> power_limit_w() const;
  std::optional<std::uint64_t> memory_free_bytes() const;
  /// A power cap, a thermal limit or a slowdown holds the clock down at this moment.
  std::optional<bool> throttled() const;

 private:
  void* device_ = nullptr;
};

/// Driver version as users know it (580.65.06); absent without NVML.
std::optional<std::string> nvml_driver_version();

}  // namespace attnbench::kernels
