// The only file with toml++, taken as a header so that --help loads no library for it.
#include "bench/cli/config_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// Its assertions hold for no input but good one; without them bad input becomes an error, as in release.
#define TOML_ASSERT(condition) static_cast<void>(condition)
#include <toml++/toml.h>

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

constexpr std::size_t kMostBytes = 1 << 20;  // /dev/zero has no end, and no list of options is that long

Result<std::string> read_file(const std::string& path) {
  const auto cannot = [&](const std::string& why) {
    return fail(ErrorKind::kUnreadable, fmt::format("--config {} cannot be read: {}", path, why));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return cannot(std::strerror(errno));
  struct stat facts {};
  if (fstat(fileno(file.get()), &facts) == 0 && S_ISDIR(facts.st_mode)) return cannot("it is a directory");
  std::string text(kMostBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return cannot(std::strerror(errno));
  if (text.size() > kMostBytes) return cannot("it is longer than 1 MiB");
  return text;
}

/// The entries of one file, or its first mistake.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  Result<std::vector<ConfigEntry>> read(std::string_view text) {
    const toml::parse_result parsed = toml::parse(text);
    if (!parsed) return mistake(parsed.error().source().begin.line, std::string(parsed.error().description()));
    if (auto ok = table("", parsed.table()); !ok) return tl::unexpected(ok.error());
    // The library sorts keys by name; mistakes are told from the top.
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const ConfigEntry& a, const ConfigEntry& b) { return a.line < b.line; });
    return std::move(entries_);
  }

 private:
  tl::unexpected<base::Error> mistake(std::size_t line, const std::string& what) const {
    return fail(ErrorKind::kUsage, fmt::format("--config {}: line {}: {}", path_, line, what));
  }

  Result<void> table(const std::string& section, const toml::table& source) {
    for (const auto& [key, node] : source) {
      const std::string name(key.str());
      const std::size_t line = key.source().begin.line;
      if (const toml::table* inner = node.as_table(); inner != nullptr && section.empty()) {
        if (auto ok = table(name, *inner); !ok) return ok;
        continue;
      }
      ConfigEntry entry{section, name, {}, node.is_array(), line};
      if (const toml::array* items = node.as_array()) {
        if (items->empty()) return mistake(line, fmt::format("{} = [] says nothing; give it a value", name));
        for (const toml::node& item : *items) {
          if (auto ok = add(entry, item); !ok) return ok;
        }
      } else if (auto ok = add(entry, node); !ok) {
        return ok;
      }
      entries_.push_back(std::move(entry));
    }
    return {};
  }

  Result<void> add(ConfigEntry& entry, const toml::node& node) const {
    if (const auto* text = node.as_string()) {
      entry.values.push_back(text->get());
    } else if (const auto* integer = node.as_integer()) {
      entry.values.push_back(std::to_string(integer->get()));
    } else if (const auto* number = node.as_floating_point()) {
      entry.values.push_back(fmt::format("{}", number->get()));
    } else if (const auto* truth = node.as_boolean()) {
      entry.values.emplace_back(truth->get() ? "true" : "false");
    } else {
      const char* kind = node.is_table() ? "a table" : node.is_array() ? "an array in an array" : "a date or a time";
      return mistake(node.source().begin.line,
                     fmt::format("{} is {}; give it a text, a number, true, false, or an array of those", entry.key,
                                 node.is_array_of_tables() ? "an array of tables" : kind));
    }
    return {};
  }

  const std::string& path_;
  std::vector<ConfigEntry> entries_;
};

}  // namespace

Result<std::vector<ConfigEntry>> read_config(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return tl::unexpected(text.error());
  return Reader(path).read(*text);
}

}  // namespace attnbench::cli
