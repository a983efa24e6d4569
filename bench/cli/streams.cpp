// Descriptors 0 to 2.
#include "bench/cli/streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <initializer_list>

namespace attnbench::cli {

void fill_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // open takes the lowest free number, which is this one. The wrong direction, so that using it fails.
    static_cast<void>(open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

bool flush_standard_output() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

}  // namespace attnbench::cli
