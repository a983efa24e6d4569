// What --version prints.
#pragma once

#include <string>

namespace attnbench::cli {

/// Version, commit, compiler and flags, and the features of the build, one a line.
std::string version_text();

}  // namespace attnbench::cli
