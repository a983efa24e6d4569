// What this process may use of the machine: processors and memory, within its control groups and ulimits. Linux only.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench::kernels {

/// Processor and cache, read once. Empty or 0 where the system does not say.
struct HostProcessor {
  std::string name;
  int cores = 1;  // the affinity mask, cut down to the control group's processor quota (rounded up)
  std::uint64_t last_level_cache_bytes = 0;
};

/// Memory now. Both are cut down to the limits of the control group, of the address space and of data, where set.
struct HostMemory {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // could be allocated without swapping: caches that can be dropped count as free
};

/// `root` is prefixed to every path ("" for the real system), so that tests can show another machine. `affinity_cores`
/// is the size of the affinity mask.
HostProcessor read_host_processor(const std::string& root, int affinity_cores);
HostMemory read_host_memory(const std::string& root);

/// Processors in the affinity mask of this process, at least 1.
int affinity_cores();

/// Resident bytes of this process now, and their high-water mark since the last reset. 0: not known.
std::uint64_t resident_bytes();
std::uint64_t peak_resident_bytes();
/// Makes the high-water mark start again at the present value. False: the kernel refuses.
bool reset_peak_resident();

}  // namespace attnbench::kernels
