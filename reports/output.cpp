// Bytes to a file, whole or not at all.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "reports/emit.hpp"

namespace attnbench::reports {

namespace {

tl::unexpected<base::Error> cannot_write(const std::string& path, int error_number) {
  const std::string where = path == "-" ? "standard output" : path;
  return base::fail(base::ErrorKind::kFailed, fmt::format("cannot write {}: {}", where, std::strerror(error_number)));
}

/// 0, or the errno of the write that failed.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

base::Result<void> write_in_place(const std::string& path, std::string_view bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return cannot_write(path, errno);
  const int error_number = write_all(descriptor, bytes);
  ::close(descriptor);
  if (error_number != 0) return cannot_write(path, error_number);
  return {};
}

/// Permissions of a new file under the process's mask, or those of the file that is replaced.
mode_t mode_of(bool exists, const struct stat& facts) {
  if (exists) return facts.st_mode & 07777;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

/// Through a symbolic link the file it names is replaced, not the link.
bool resolve(std::string& path) {
  char* const resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return false;
  path = resolved;
  std::free(resolved);
  return true;
}

}  // namespace

base::Result<void> can_write_output(const std::string& path_or_dash) {
  if (path_or_dash.empty() || path_or_dash == "-") return {};
  struct stat facts {};
  const bool exists = ::stat(path_or_dash.c_str(), &facts) == 0;
  if (exists && S_ISDIR(facts.st_mode)) return cannot_write(path_or_dash, EISDIR);
  if (exists && !S_ISREG(facts.st_mode)) {
    return ::access(path_or_dash.c_str(), W_OK) == 0 ? base::Result<void>{} : cannot_write(path_or_dash, errno);
  }
  std::string path = path_or_dash;
  if (exists && !resolve(path)) return cannot_write(path, errno);
  // A file is written beside its place and renamed, so the folder matters alone.
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? base::Result<void>{} : cannot_write(path_or_dash, errno);
}

base::Result<void> write_output(const std::string& path_or_dash, std::string_view bytes) {
  if (path_or_dash == "-") {
    std::fflush(stdout);  // what was printed before comes first
    const int error_number = write_all(STDOUT_FILENO, bytes);
    if (error_number != 0) return cannot_write(path_or_dash, error_number);
    return {};
  }
  std::string path = path_or_dash;
  struct stat facts {};
  const bool exists = ::stat(path.c_str(), &facts) == 0;
  if (exists && S_ISDIR(facts.st_mode)) return cannot_write(path, EISDIR);
  if (exists && !S_ISREG(facts.st_mode)) return write_in_place(path, bytes);
  if (exists && !resolve(path)) return cannot_write(path, errno);
  std::string temporary = path + ".XXXXXX";
  const int descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return cannot_write(path_or_dash, errno);
  int error_number = write_all(descriptor, bytes);
  if (error_number == 0 && ::fchmod(descriptor, mode_of(exists, facts)) != 0) error_number = errno;
  if (::close(descriptor) != 0 && error_number == 0) error_number = errno;
  if (error_number == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error_number = errno;
  if (error_number == 0) return {};
  ::unlink(temporary.c_str());
  return cannot_write(path_or_dash, error_number);
}

base::Result<void> append_output(const std::string& path_or_dash, std::string_view bytes) {
  if (path_or_dash == "-") return write_output(path_or_dash, bytes);
  const int descriptor = ::open(path_or_dash.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return cannot_write(path_or_dash, errno);
  int error_number = write_all(descriptor, bytes);
  if (::close(descriptor) != 0 && error_number == 0) error_number = errno;
  if (error_number != 0) return cannot_write(path_or_dash, error_number);
  return {};
}

base::Result<void> write_format(std::string_view format, const std::string& path_or_dash, std::string_view bytes) {
  return appends(format) ? append_output(path_or_dash, bytes) : write_output(path_or_dash, bytes);
}

}  // namespace attnbench::reports
