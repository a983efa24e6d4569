// Rows to a file that is synced after each line.
#include "bench/run/sink.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "bench/cli/options.hpp"
#include "bench/run/host.hpp"

namespace attnbench::run {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
namespace fs = std::filesystem;

class FileSink : public RowSink {
 public:
  FileSink(int descriptor, std::string path, Serializer serialize)
      : descriptor_(descriptor), path_(std::move(path)), serialize_(std::move(serialize)) {}
  ~FileSink() override { ::close(descriptor_); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  Result<void> row(const reports::Row& row) override {
    const std::string line = serialize_(row) + "\n";
    std::size_t written = 0;
    while (written < line.size()) {
      const ssize_t count = ::write(descriptor_, line.data() + written, line.size() - written);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return problem("cannot be written");
      written += static_cast<std::size_t>(count);
    }
    // A pipe or /dev/null has nothing to wait for and says EINVAL.
    while (::fsync(descriptor_) != 0) {
      if (errno == EINVAL || errno == EROFS) break;
      if (errno != EINTR) return problem("did not reach the disk");
    }
    return {};
  }

 private:
  Result<void> problem(const char* what) const {
    return fail(ErrorKind::kFailed, fmt::format("{} {}: {}", path_, what, std::strerror(errno)));
  }

  int descriptor_;
  std::string path_;
  Serializer serialize_;
};

}  // namespace

Result<std::unique_ptr<RowSink>> file_sink(const std::string& path, Serializer serialize) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return fail(ErrorKind::kFailed, fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
  }
  return std::make_unique<FileSink>(descriptor, path, std::move(serialize));
}

Result<std::size_t> cut_torn_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorKind::kUnreadable, fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t newline = bytes.rfind('\n');
  const std::size_t keep = newline == std::string::npos ? 0 : newline + 1;
  if (keep == bytes.size()) return std::size_t{0};
  if (::truncate(path.c_str(), static_cast<off_t>(keep)) != 0) {
    return fail(ErrorKind::kUnreadable,
                fmt::format("{} ends in a torn line that cannot be cut: {}", path, std::strerror(errno)));
  }
  return bytes.size() - keep;
}

std::string default_directory() {
  std::string stamp = utc_now();  // 2025-01-31T12:00:00Z
  std::erase(stamp, '-');
  std::erase(stamp, ':');
  const std::string first = fmt::format("{}/{}", cli::kOutRoot, stamp);
  std::string directory = first;
  std::error_code ignored;
  for (int i = 2; fs::exists(directory, ignored); ++i) directory = fmt::format("{}-{}", first, i);
  return directory;
}

Result<void> prepare_directory(const std::string& directory, const std::string& rows_file, bool resume) {
  std::error_code error;
  const bool has_rows = fs::exists(fs::path(directory) / rows_file, error);
  if (resume && !has_rows) {
    return fail(ErrorKind::kUsage, fmt::format("--resume: {} has no {}; name the folder of an earlier sweep with --out",
                                               directory, rows_file));
  }
  if (!resume && fs::exists(directory, error)) {
    return fail(ErrorKind::kUsage, fmt::format("--out {} exists already; name another folder, or add --resume to "
                                               "continue the sweep in it",
                                               directory));
  }
  fs::create_directories(directory, error);
  if (error) return fail(ErrorKind::kFailed, fmt::format("--out {} cannot be made: {}", directory, error.message()));
  return {};
}

}  // namespace attnbench::run
