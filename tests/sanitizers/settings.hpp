// What the sanitizers are told, for processes that tests start.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace attnbench::tests {

/// Processes that are started from here do not look for leaks; the tests on threads do. OpenMPI leaves memory behind in
/// modules that it has unloaded, so those leaks have no name that could be suppressed.
inline void ignore_leaks_of_ranks() {
#ifdef ATTNBENCH_SANITIZED
  const char* const before = std::getenv("ASAN_OPTIONS");
  setenv("ASAN_OPTIONS", (std::string(before == nullptr ? "" : before) + ":detect_leaks=0").c_str(), 1);
#endif
}

/// The sanitizers' settings as NAME=value, for programs that are started with an environment of their own.
inline std::vector<std::string> sanitizer_environment() {
  std::vector<std::string> settings;
  for (const char* name : {"ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"}) {
    if (const char* const value = std::getenv(name)) settings.push_back(std::string(name) + '=' + value);
  }
  return settings;
}

}  // namespace attnbench::tests
