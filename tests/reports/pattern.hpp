// Extended POSIX patterns. std::regex makes GCC 12 warn of its own code under AddressSanitizer.
#pragma once

#include <regex.h>

#include <array>
#include <string>
#include <vector>

namespace attnbench::tests {

/// The whole match and its groups; nothing where `text` does not match.
inline std::vector<std::string> groups_of(const std::string& text, const char* pattern) {
  std::vector<std::string> groups;
  if (text.find('\0') != std::string::npos) return groups;  // text would end there
  regex_t compiled{};
  if (regcomp(&compiled, pattern, REG_EXTENDED) != 0) return groups;
  std::array<regmatch_t, 4> found{};
  if (regexec(&compiled, text.c_str(), found.size(), found.data(), 0) == 0) {
    for (const regmatch_t& group : found) {
      const bool there = group.rm_so >= 0;
      groups.push_back(there ? text.substr(static_cast<std::size_t>(group.rm_so),
                                           static_cast<std::size_t>(group.rm_eo - group.rm_so))
                             : std::string());
    }
  }
  regfree(&compiled);
  return groups;
}

}  // namespace attnbench::tests
