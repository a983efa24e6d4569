// Text to a stream, without an exception when the stream cannot take it.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace attnbench::cli {

/// As fmt::print, which throws when the disk is full or the terminal is gone: rows would be lost for the sake of a
/// line. What standard output did not take is said by main, at the end.
template <typename... T>
void print_to(std::FILE* stream, fmt::format_string<T...> format, T&&... values) {
  const std::string text = fmt::format(format, std::forward<T>(values)...);
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stream));
}

}  // namespace attnbench::cli
