// Rows to a file that is synced after each line.
#include "bench/run/sink.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
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
  auto sink = std::make_unique<FileSink>(descriptor, path, std::move(serialize));
  // A file system without locks gives another error; two runs in one folder are then the user's care.
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return fail(ErrorKind::kUsage, fmt::format("another run is writing to {}; wait until it has ended, or name another "
                                               "folder with --out",
                                               path));
  }
  return sink;
}

Result<Tail> read_tail(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorKind::kUnreadable, fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t newline = bytes.rfind('\n');
  const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
  return Tail{begin, bytes.substr(begin)};
}

Result<void> cut_tail(const std::string& path, const Tail& tail) {
  if (::truncate(path.c_str(), static_cast<off_t>(tail.begin)) == 0) return {};
  return fail(ErrorKind::kFailed,
              fmt::format("{} ends in a torn line that cannot be cut: {}", path, std::strerror(errno)));
}

Result<void> finish_tail(const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file << '\n';
  file.close();
  if (file) return {};
  return fail(ErrorKind::kFailed, fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
}

Result<std::string> make_default_directory() {
  std::string stamp = utc_now();  // 2025-01-31T12:00:00Z
  std::erase(stamp, '-');
  std::erase(stamp, ':');
  const std::string first = fmt::format("{}/{}", cli::kOutRoot, stamp);
  std::string directory = first;
  std::error_code error;
  fs::create_directories(cli::kOutRoot, error);
  for (int i = 2; !error; ++i) {
    // Made, not looked for: two runs may start in the same second.
    if (fs::create_directory(directory, error)) return directory;
    directory = fmt::format("{}-{}", first, i);
  }
  return fail(ErrorKind::kFailed, fmt::format("{} cannot be made: {}", directory, error.message()));
}

Result<void> prepare_directory(const std::string& directory, const std::string& rows_file, Resume resume) {
  std::error_code error;
  if (resume == Resume::kWanted) {
    if (fs::exists(fs::path(directory) / rows_file, error)) return {};
    return fail(ErrorKind::kUsage, fmt::format("--resume: {} has no {}; name the folder of an earlier sweep with --out",
                                               directory, rows_file));
  }
  fs::path path = fs::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "runs/"
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (!error && fs::create_directory(path, error)) return {};
  if (error && !fs::exists(path)) {
    return fail(ErrorKind::kFailed, fmt::format("--out {} cannot be made: {}", directory, error.message()));
  }
  const char* const advice = resume == Resume::kPossible ? ", or add --resume to continue the sweep in it" : "";
  return fail(ErrorKind::kUsage, fmt::format("--out {} exists already; name another folder{}", directory, advice));
}

}  // namespace attnbench::run
