// What this binary was built from and with. Generated at build time; a text is empty where it could not be found.
#pragma once

#include <string_view>

namespace attnbench::base {

struct BuildInfo {
  std::string_view version;     // of the project, e.g. 0.1.0
  std::string_view commit;      // git describe --always --dirty; empty outside a git checkout
  std::string_view compiler;    // name and version
  std::string_view flags;       // of the C++ compiler, build type included
  std::string_view build_type;  // Release, Debug, ...
  std::string_view system;      // what it was built for, e.g. Linux x86_64
  std::string_view libraries;   // compiled against, as their packages say, e.g. "fmt 9.1.0, CLI11 2.3.2"
};

const BuildInfo& build_info();

}  // namespace attnbench::base
