// Compares places, not spellings.
#include "bench/cli/writers.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/rows_io.hpp"

namespace attnbench::cli {

namespace fs = std::filesystem;

bool same_place(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::exists(a, error) && !fs::is_regular_file(a, error)) return false;  // a pipe or /dev/null takes two
  if (fs::equivalent(a, b, error)) return true;
  const fs::path first = fs::weakly_canonical(fs::absolute(a, error), error);
  if (error) return a == b;
  const fs::path second = fs::weakly_canonical(fs::absolute(b, error), error);
  return error ? a == b : first == second;
}

base::Result<void> check_writers(const Outputs& outputs, const std::string& rows) {
  std::vector<std::pair<std::string, const std::string*>> writers{{"--csv", &outputs.csv},
                                                                  {"--json", &outputs.json},
                                                                  {"--md", &outputs.md},
                                                                  {"--gbench-json", &outputs.gbench_json}};
  for (const EmitTarget& target : outputs.emit) writers.emplace_back("--emit " + target.format, &target.path);
  const auto is_dash = [](const std::string& path) { return path == "-"; };
  for (std::size_t i = 0; i < writers.size(); ++i) {
    const auto& [option, path] = writers[i];
    if (path->empty()) continue;
    for (std::size_t j = i + 1; j < writers.size(); ++j) {
      const auto& [other, second] = writers[j];
      if (second->empty() || is_dash(*path) != is_dash(*second)) continue;
      if (!is_dash(*path) && !same_place(*path, *second)) continue;
      return base::fail(base::ErrorKind::kUsage,
                        fmt::format("{} and {} both write to {}; give {} a file of its own", option, other,
                                    is_dash(*path) ? "standard output" : *path, other));
    }
    if (rows.empty() || is_dash(*path)) continue;
    if (same_place(*path, rows) || same_place(*path, fs::path(rows) / reports::kRowsFile)) {
      return base::fail(base::ErrorKind::kUsage,
                        fmt::format("{} {} would be written over the rows; give it another name", option, *path));
    }
  }
  return {};
}

}  // namespace attnbench::cli
