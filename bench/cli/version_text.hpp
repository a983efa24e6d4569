// What --version prints.
#pragma once

#include <string>

namespace attnbench::cli {

/// Version, commit, compiler and flags, the backends of the build and the libraries it was compiled against, one a
/// line.
std::string version_text();

}  // namespace attnbench::cli
