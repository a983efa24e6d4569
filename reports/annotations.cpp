// Escapes workflow commands.
#include "reports/annotations.hpp"

#include <fmt/format.h>

namespace attnbench::reports::annotations {
namespace {

constexpr std::size_t kMost = 10;

/// In a property also what ends it.
std::string escaped(std::string_view text, bool property) {
  std::string safe;
  for (const char letter : text) {
    const bool special =
        letter == '%' || letter == '\r' || letter == '\n' || (property && (letter == ':' || letter == ','));
    safe += special ? fmt::format("%{:02X}", static_cast<int>(letter)) : std::string(1, letter);
  }
  return safe;
}

std::string line(std::string_view level, const Annotation& annotation) {
  return fmt::format("::{} title={}::{}\n", level, escaped(annotation.title, true), escaped(annotation.message, false));
}

}  // namespace

std::string lines(std::string_view level, const std::vector<Annotation>& all) {
  std::string text;
  const std::size_t shown = all.size() > kMost ? kMost - 1 : all.size();
  for (std::size_t i = 0; i < shown; ++i) text += line(level, all[i]);
  if (shown < all.size()) {
    text += line(level, {"and more", fmt::format("{} in all; the table has the rest", all.size())});
  }
  return text;
}

}  // namespace attnbench::reports::annotations
