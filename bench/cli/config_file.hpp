// A --config file as keys and values. What a key means, settings.hpp knows.
#pragma once

#include <string>
#include <vector>

#include "bench/base/error.hpp"

namespace attnbench::cli {

/// One `key = value` of a config file; the value as somebody would type it behind the option.
struct ConfigEntry {
  std::string section;  // empty at the top
  std::string key;
  std::vector<std::string> values;  // of an array every item, else one
  bool is_array = false;
  std::size_t line = 0;  // 1-based
};

/// Reads a TOML file: strings, numbers, booleans, and arrays of these, at the top or in one level of tables.
///
/// Errors  kUnreadable: no file that can be read (a directory, nothing there, more than 1 MiB). kUsage, with the line:
///         not TOML (so a key that is given twice), an array without items, a value of another kind
base::Result<std::vector<ConfigEntry>> read_config(const std::string& path);

}  // namespace attnbench::cli
