// Reads the machine from /proc, /sys and os-release.
#include "bench/run/host.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <set>

#include "bench/base/rng.hpp"

namespace attnbench::run {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// PRETTY_NAME of os-release, without its quotes.
std::string distribution() {
  std::ifstream file("/etc/os-release");
  const std::string key = "PRETTY_NAME=";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    std::string value = line.substr(key.size());
    std::erase(value, '"');
    return value;
  }
  return {};
}

std::string governors() {
  std::set<std::string> found;
  for (int cpu = 0;; ++cpu) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}", cpu);
    if (::access(folder.c_str(), F_OK) != 0) break;
    const std::string governor = first_line(folder + "/cpufreq/scaling_governor");
    if (!governor.empty()) found.insert(governor);
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace

HostFacts host_facts() {
  HostFacts facts;
  utsname name{};
  if (::uname(&name) == 0) {
    facts.host = name.nodename;
    facts.os = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  }
  const std::string pretty = distribution();
  if (!pretty.empty()) facts.os = facts.os.empty() ? pretty : pretty + ", " + facts.os;
  facts.governor = governors();
  return facts;
}

std::optional<double> load_average() {
  double load = 0;
  if (::getloadavg(&load, 1) != 1) return std::nullopt;
  return load;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string libraries_text(const kernels::DeviceFacts& device) {
  std::string text;
  for (const auto& [name, version] : device.libraries) {
    text += (text.empty() ? "" : "; ") + name + (version.empty() ? "" : " " + version);
  }
  return text;
}

std::string fingerprint(const HostFacts& host, const kernels::DeviceFacts& device) {
  const std::string all = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", kernels::to_string(device.kind),
                                      device.id, device.name, device.uuid, device.cores, device.isa,
                                      device.memory_total_bytes, device.driver, libraries_text(device), host.os);
  std::uint64_t hash = 0;
  for (const char character : all) hash = base::mix64(hash ^ static_cast<unsigned char>(character));
  return fmt::format("{:016x}", hash);
}

}  // namespace attnbench::run
