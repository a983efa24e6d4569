// Readers of /proc and /sys. A file that is missing or odd means "no limit known", never an error.
#include "kernels/device/host_limits.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

namespace attnbench::kernels {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<double> number_in(const std::string& text) {
  std::istringstream stream(text);
  double value = 0;
  if (!(stream >> value)) return std::nullopt;
  return value;
}

std::optional<double> number_file(const std::string& path) {
  const auto line = first_line(path);
  return line ? number_in(*line) : std::nullopt;
}

/// The number after `key` at the start of a line, as in /proc/meminfo, /proc/self/status and memory.stat.
std::optional<double> keyed_number(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) return number_in(line.substr(key.size()));
  }
  return std::nullopt;
}

/// Path of this process in the hierarchy of a controller ("" names the unified hierarchy of version 2).
std::string group_path(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controller.empty() ? names == ",," : names.find("," + controller + ",") != std::string::npos) {
      return line.substr(second + 1);
    }
  }
  return "/";
}

/// Directories from the process's own group up to the mount point: a limit anywhere on the way binds. Inside a
/// container the path may name directories of the host that are not mounted; those are simply not found.
std::vector<std::string> group_directories(const std::string& root, const std::string& controller) {
  const std::string mount = root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
  std::vector<std::string> directories;
  for (std::string path = group_path(root, controller); path.size() > 1; path.resize(path.rfind('/'))) {
    directories.push_back(mount + path);
    if (path.rfind('/') == std::string::npos) break;
  }
  directories.push_back(mount);
  return directories;
}

/// Processors granted by quotas, or nothing when there is no quota.
std::optional<double> quota_cores(const std::string& root) {
  std::optional<double> least;
  const auto consider = [&](std::optional<double> quota, std::optional<double> period) {
    if (!quota || !period || *quota <= 0 || *period <= 0) return;
    least = std::min(least.value_or(*quota / *period), *quota / *period);
  };
  for (const std::string& directory : group_directories(root, "")) {
    const auto line = first_line(directory + "/cpu.max");  // "max 100000" or "150000 100000"
    if (!line || line->find(' ') == std::string::npos) continue;
    consider(number_in(*line), number_in(line->substr(line->find(' '))));
  }
  for (const std::string& directory : group_directories(root, "cpu")) {
    consider(number_file(directory + "/cpu.cfs_quota_us"), number_file(directory + "/cpu.cfs_period_us"));
  }
  return least;
}

std::uint64_t cache_bytes(const std::string& root) {
  double largest = 0;
  for (int index = 0; index < 10; ++index) {
    const auto line = first_line(root + "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    const auto value = line ? number_in(*line) : std::nullopt;
    if (!value) continue;
    const double unit = line->back() == 'K' ? 1024.0 : line->back() == 'M' ? 1024.0 * 1024.0 : 1.0;
    largest = std::max(largest, *value * unit);
  }
  return static_cast<std::uint64_t>(largest);
}

std::string processor_name(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return {};
}

/// Cuts memory down to one control group's limit; `cache_key` names the dropped-on-demand part in memory.stat.
void limit_memory(HostMemory& memory, const std::string& directory, const char* limit_file, const char* usage_file,
                  const char* cache_key) {
  const auto limit = number_file(directory + limit_file);
  if (!limit || *limit >= static_cast<double>(memory.total_bytes)) return;  // "max", or a number that means it
  memory.total_bytes = static_cast<std::uint64_t>(*limit);
  const double cache = keyed_number(directory + "/memory.stat", cache_key).value_or(0.0);
  const double used = std::max(0.0, number_file(directory + usage_file).value_or(0.0) - cache);
  const double free = std::max(0.0, *limit - used);
  memory.free_bytes = std::min(memory.free_bytes, static_cast<std::uint64_t>(free));
}

constexpr double kKib = 1024.0;  // /proc counts memory in KiB

/// Cuts memory down to a limit that `ulimit` set, of which the process has taken `used_key` of its status.
void limit_process(HostMemory& memory, const std::string& root, const char* limit_key, const char* used_key) {
  const auto limit = keyed_number(root + "/proc/self/limits", limit_key);  // the soft limit, or "unlimited"
  if (!limit) return;
  const double used = keyed_number(root + "/proc/self/status", used_key).value_or(0.0) * kKib;
  const double free = std::max(0.0, *limit - used);
  if (*limit < static_cast<double>(memory.total_bytes)) memory.total_bytes = static_cast<std::uint64_t>(*limit);
  if (free < static_cast<double>(memory.free_bytes)) memory.free_bytes = static_cast<std::uint64_t>(free);
}

}  // namespace

HostProcessor read_host_processor(const std::string& root, int affinity_cores) {
  HostProcessor host;
  host.name = processor_name(root);
  host.last_level_cache_bytes = cache_bytes(root);
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (host.last_level_cache_bytes == 0 && root.empty()) {
    host.last_level_cache_bytes = static_cast<std::uint64_t>(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE)));
  }
#endif
  host.cores = std::max(1, affinity_cores);
  if (const auto quota = quota_cores(root); quota && *quota < host.cores) {
    host.cores = std::max(1, static_cast<int>(*quota + 0.999));
  }
  return host;
}

HostMemory read_host_memory(const std::string& root) {
  HostMemory memory;
  const std::string meminfo = root + "/proc/meminfo";
  memory.total_bytes = static_cast<std::uint64_t>(keyed_number(meminfo, "MemTotal:").value_or(0.0) * kKib);
  memory.free_bytes = static_cast<std::uint64_t>(keyed_number(meminfo, "MemAvailable:").value_or(0.0) * kKib);
  for (const std::string& directory : group_directories(root, "")) {
    limit_memory(memory, directory, "/memory.max", "/memory.current", "inactive_file ");
  }
  for (const std::string& directory : group_directories(root, "memory")) {
    limit_memory(memory, directory, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file ");
  }
  limit_process(memory, root, "Max address space ", "VmSize:");
  limit_process(memory, root, "Max data size ", "VmData:");
  return memory;
}

int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return std::max(1, CPU_COUNT(&set));
}

std::uint64_t resident_bytes() {
  return static_cast<std::uint64_t>(keyed_number("/proc/self/status", "VmRSS:").value_or(0.0) * kKib);
}

std::uint64_t peak_resident_bytes() {
  return static_cast<std::uint64_t>(keyed_number("/proc/self/status", "VmHWM:").value_or(0.0) * kKib);
}

bool reset_peak_resident() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace attnbench::kernels
