// Clocks, limits and throttle reasons from NVML, opened at run time.
#include "kernels/device/nvml.hpp"

#include <dlfcn.h>

namespace attnbench::kernels {
namespace {

// The few declarations used here, so that neither NVML's header nor its stub is needed to build.
constexpr int kSuccess = 0;
constexpr unsigned kClockSm = 1;
// Bits of the clocks-event reasons that hold a clock down: software power cap, hardware slowdown, software and hardware
// thermal slowdown, power brake.
constexpr unsigned long long kThrottleMask = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

struct MemoryInfo {
  unsigned long long total, free, used;
};

struct Library {
  int (*init)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*handle_by_bus)(const char*, void**) = nullptr;
  int (*clock)(void*, unsigned, unsigned*) = nullptr;
  int (*clock_max)(void*, unsigned, unsigned*) = nullptr;
  int (*power_limit)(void*, unsigned*) = nullptr;
  int (*reasons)(void*, unsigned long long*) = nullptr;
  int (*memory)(void*, MemoryInfo*) = nullptr;
  bool ready = false;
};

template <typename F>
void resolve(void* library, F& function, const char* name) {
  if (function == nullptr) function = reinterpret_cast<F>(dlsym(library, name));
}

Library open_library() {
  Library l;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return l;
  resolve(library, l.init, "nvmlInit_v2");
  resolve(library, l.driver_version, "nvmlSystemGetDriverVersion");
  resolve(library, l.handle_by_bus, "nvmlDeviceGetHandleByPciBusId_v2");
  resolve(library, l.clock, "nvmlDeviceGetClockInfo");
  resolve(library, l.clock_max, "nvmlDeviceGetMaxClockInfo");
  resolve(library, l.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  resolve(library, l.reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  resolve(library, l.reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");  // its name before driver 535
  resolve(library, l.memory, "nvmlDeviceGetMemoryInfo");
  l.ready = l.init != nullptr && l.init() == kSuccess;
  return l;
}

const Library& library() {
  static const Library l = open_library();
  return l;
}

}  // namespace

NvmlDevice NvmlDevice::find(const std::string& pci_bus_id) {
  NvmlDevice found;
  const Library& l = library();
  if (!l.ready || l.handle_by_bus == nullptr) return found;
  void* handle = nullptr;
  if (l.handle_by_bus(pci_bus_id.c_str(), &handle) == kSuccess) found.device_ = handle;
  return found;
}

std::optional<double> NvmlDevice::sm_clock_mhz() const {
  unsigned mhz = 0;
  const Library& l = library();
  if (device_ == nullptr || l.clock == nullptr || l.clock(device_, kClockSm, &mhz) != kSuccess) return std::nullopt;
  return mhz;
}

std::optional<double> NvmlDevice::sm_clock_max_mhz() const {
  unsigned mhz = 0;
  const Library& l = library();
  if (device_ == nullptr || l.clock_max == nullptr || l.clock_max(device_, kClockSm, &mhz) != kSuccess)
    return std::nullopt;
  return mhz;
}

std::optional<double> NvmlDevice::power_limit_w() const {
  unsigned milliwatts = 0;
  const Library& l = library();
  if (device_ == nullptr || l.power_limit == nullptr || l.power_limit(device_, &milliwatts) != kSuccess)
    return std::nullopt;
  return milliwatts / 1000.0;
}

std::optional<std::uint64_t> NvmlDevice::memory_free_bytes() const {
  MemoryInfo info{};
  const Library& l = library();
  if (device_ == nullptr || l.memory == nullptr || l.memory(device_, &info) != kSuccess) return std::nullopt;
  return info.free;
}

std::optional<bool> NvmlDevice::throttled() const {
  unsigned long long reasons = 0;
  const Library& l = library();
  if (device_ == nullptr || l.reasons == nullptr || l.reasons(device_, &reasons) != kSuccess) return std::nullopt;
  return (reasons & kThrottleMask) != 0;
}

std::optional<std::string> nvml_driver_version() {
  char text[96] = {};
  const Library& l = library();
  if (!l.ready || l.driver_version == nullptr || l.driver_version(text, sizeof text) != kSuccess) return std::nullopt;
  return std::string(text);
}

}  // namespace attnbench::kernels
