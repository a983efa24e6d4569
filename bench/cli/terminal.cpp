// Colour and width of a terminal.
#include "bench/cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace attnbench::cli {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

bool use_color(Color color, int descriptor) {
  if (color != Color::kAuto) return color == Color::kAlways;
  const char* term = std::getenv("TERM");
  return !is_set("NO_COLOR") && isatty(descriptor) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

int terminal_width(int descriptor) {
  winsize size{};
  return isatty(descriptor) == 1 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace attnbench::cli
