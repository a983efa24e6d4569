// Finds the runs of a folder.
#include "reports/launches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "reports/rows_io.hpp"

namespace attnbench::reports {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> folders_with_rows(const std::string& path) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (fs::exists(entry->path() / kRowsFile, error)) found.push_back(entry->path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

base::Result<std::vector<Document>> load_launches(const std::string& path) {
  std::error_code error;
  std::vector<std::string> paths{path};
  if (fs::is_directory(path, error) && !fs::exists(fs::path(path) / kRowsFile, error)) {
    paths = folders_with_rows(path);
    if (paths.empty()) {
      return base::fail(
          base::ErrorKind::kUnreadable,
          fmt::format("{} holds no {} and no folder that does; give a folder that `attnbench sweep --out` "
                      "wrote, or one with several of them",
                      path, kRowsFile));
    }
  }
  std::vector<Document> documents;
  for (const std::string& one : paths) {
    auto document = load_rows(one);
    if (!document) return tl::unexpected(document.error());
    documents.push_back(std::move(*document));
  }
  return documents;
}

}  // namespace attnbench::reports
