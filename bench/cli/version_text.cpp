// Facts of the build. Nothing is opened or loaded for them.
#include "bench/cli/version_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/base/version.hpp"
#include "kernels/build_features.hpp"

namespace attnbench::cli {
namespace {

constexpr std::string_view kLeftOut = "left out: ";  // how the note of a build without CUDA begins

std::string line(std::string_view name, std::string_view value) {
  return fmt::format("{:<20} {}\n", name, value.empty() ? "unknown" : value);
}

/// "fmt 9.1.0, CLI11 2.3.2" as a line each. A package that keeps its version to itself ends in a blank.
std::string library_lines(std::string_view libraries) {
  std::string text;
  while (!libraries.empty()) {
    const std::string_view one = libraries.substr(0, libraries.find(", "));
    libraries.remove_prefix(std::min(libraries.size(), one.size() + 2));
    const std::size_t blank = one.rfind(' ');
    text += line(one.substr(0, blank), one.substr(blank + 1));
  }
  return text;
}

std::string cuda_text() {
  std::string_view note = kernels::kCudaBuildNote;
  if (kernels::kCudaBuilt) return fmt::format("built as a plug-in, libattnbench_cuda.so: {}", note);
  if (note.starts_with(kLeftOut)) note.remove_prefix(kLeftOut.size());
  return fmt::format("not built: {}", note);
}

}  // namespace

std::string version_text() {
  const base::BuildInfo& info = base::build_info();
  return fmt::format("attnbench {}\n", info.version) + line("commit", info.commit) + line("compiler", info.compiler) +
         line("flags", info.flags) + line("built for", info.system) + line("CPU backend", "built") +
         line("CUDA backend", cuda_text()) + library_lines(info.libraries) +
         "Versions are those compiled against; attnbench doctor opens the libraries and says what is loaded.\n";
}

}  // namespace attnbench::cli
