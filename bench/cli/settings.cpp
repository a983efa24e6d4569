// Layers of settings and the checks that belong to a layer.
#include "bench/cli/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "bench/base/suggest.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

constexpr std::array<std::pair<std::string_view, unsigned>, 11> kVerbs{{{"sweep", verb::kSweep},
                                                                        {"report", verb::kReport},
                                                                        {"verify", verb::kVerify},
                                                                        {"gbench", verb::kGbench},
                                                                        {"list", verb::kList},
                                                                        {"explain", verb::kExplain},
                                                                        {"doctor", verb::kDoctor},
                                                                        {"version", verb::kVersion},
                                                                        {"fsdp", verb::kFsdp},
                                                                        {"compare", verb::kCompare},
                                                                        {"noise", verb::kNoise}}};

std::string place(const std::string& path, const ConfigEntry& entry) {
  return fmt::format("{}: line {}", path, entry.line);
}

Result<void> unknown_key(const std::string& path, const ConfigEntry& entry, unsigned verbs) {
  const std::vector<std::string_view> known = option_names(verbs);
  const std::string_view match = base::nearest(entry.key, known);
  const std::string hint = match.empty()        ? "keys are the options without the dashes, e.g. seq-len = \"1k,4k\""
                           : match == entry.key ? "a file does not name another one"  // --config
                                                : fmt::format("did you mean \"{}\"?", match);
  const std::string section = entry.section.empty() ? "" : " in [" + entry.section + "]";
  return fail(ErrorKind::kUsage,
              fmt::format("{}: unknown key \"{}\"{}; {}", place(path, entry), entry.key, section, hint));
}

/// The verbs that the keys of a section are for; all of them at the top.
Result<unsigned> verbs_of(const std::string& path, const ConfigEntry& entry) {
  if (entry.section.empty()) return ~0u;
  const unsigned bit = verb_bit(entry.section);
  if (bit != 0) return bit;
  std::vector<std::string_view> known;
  for (const auto& [word, other] : kVerbs) known.push_back(word);
  return fail(ErrorKind::kUsage, fmt::format("{}: unknown section [{}]{}", place(path, entry), entry.section,
                                             base::did_you_mean(entry.section, known)));
}

/// Variables that are not options: read by scripts/ and by the tests, or the names of CMake options, which the
/// environment of a build may well carry.
constexpr std::array<std::string_view, 13> kOtherVariables{"ATTNBENCH_BARE_INSIDE",
                                                           "ATTNBENCH_CMAKE_ARGS",
                                                           "ATTNBENCH_CUDA",
                                                           "ATTNBENCH_FUZZ",
                                                           "ATTNBENCH_CUDNN_FRONTEND_INCLUDE",
                                                           "ATTNBENCH_GOLDEN",
                                                           "ATTNBENCH_CUDNN_INCLUDE",
                                                           "ATTNBENCH_KERNEL_SET",
                                                           "ATTNBENCH_PTXAS_VERBOSE",
                                                           "ATTNBENCH_SANITIZE",
                                                           "ATTNBENCH_TESTS",
                                                           "ATTNBENCH_WERROR",
                                                           "ATTNBENCH_UPDATE_GOLDEN"};

constexpr std::string_view kVariablePrefix = "ATTNBENCH_";

}  // namespace

std::string variable_of(std::string_view option) {
  std::string name(kVariablePrefix);
  for (const char c : option) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

unsigned verb_bit(std::string_view name) {
  for (const auto& [word, bit] : kVerbs) {
    if (word == name) return bit;
  }
  return 0;
}

const OptionSpec* find_option(std::string_view name, unsigned verb_bits) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const OptionSpec& option : option_table()) {
    if ((option.verbs & verb_bits) == 0) continue;
    if (option.name == dashed || (!option.alias.empty() && option.alias == dashed)) return &option;
  }
  return nullptr;
}

std::vector<std::string_view> option_names(unsigned verb_bits) {
  std::vector<std::string_view> names;
  for (const OptionSpec& option : option_table()) {
    if ((option.verbs & verb_bits) != 0) names.push_back(option.name);
  }
  return names;
}

const Setting* Settings::find(std::string_view option) const {
  const auto found = values_.find(option);
  return found == values_.end() ? nullptr : &found->second;
}

void Settings::add_environment(const Environment& environment) {
  for (const OptionSpec& option : option_table()) {
    if ((option.verbs & verb_) == 0) continue;
    for (const std::string_view name : {option.name, option.alias}) {
      if (name.empty()) continue;
      const auto found = environment.find(variable_of(name));
      if (found != environment.end() && !found->second.empty()) add(option, {found->second, found->first});
    }
  }
}

Result<void> check_environment(const Environment& environment) {
  const auto is_set = [&](const std::string& name) {
    const auto found = environment.find(name);
    return found != environment.end() && !found->second.empty();
  };
  std::vector<std::string> options;
  for (const OptionSpec& option : option_table()) {
    options.push_back(variable_of(option.name));
    if (option.alias.empty()) continue;
    options.push_back(variable_of(option.alias));
    if (is_set(options.back()) && is_set(variable_of(option.name))) {
      return fail(ErrorKind::kUsage,
                  fmt::format("{} and {} are one option; set one of them", variable_of(option.name), options.back()));
    }
  }
  // What follows the prefix is what can be mistyped; with it any two names would look alike.
  const auto tail = [](std::string_view name) { return name.substr(std::min(name.size(), kVariablePrefix.size())); };
  std::vector<std::string_view> known;
  for (const std::string_view name : options) known.push_back(tail(name));
  for (const std::string_view name : kOtherVariables) known.push_back(tail(name));
  for (const auto& [name, value] : environment) {
    if (std::find(known.begin(), known.end(), tail(name)) != known.end()) continue;
    const std::string_view match = base::nearest(tail(name), known);
    const std::string hint =
        match.empty() ? "options are set by ATTNBENCH_<OPTION>, e.g. ATTNBENCH_SEQ_LEN=4k; see attnbench sweep --help"
                      : fmt::format("did you mean {}{}?", kVariablePrefix, match);
    return fail(ErrorKind::kUsage, fmt::format("unknown variable {}; {}", name, hint));
  }
  return {};
}

Result<void> Settings::add_config(const std::string& path, const std::vector<ConfigEntry>& entries) {
  std::map<std::pair<std::string_view, std::string_view>, const ConfigEntry*> seen;
  // A section is narrower than the top level, so its keys win over equal ones there.
  for (const bool in_section : {true, false}) {
    for (const ConfigEntry& entry : entries) {
      if (entry.section.empty() == in_section) continue;
      const auto verbs = verbs_of(path, entry);
      if (!verbs) return tl::unexpected(verbs.error());
      const OptionSpec* option = find_option(entry.key, *verbs & verb_);
      if (option == nullptr) option = find_option(entry.key, *verbs);
      if (option == nullptr) option = find_option(entry.key);
      if (option == nullptr || option->apply == nullptr || (option->verbs & *verbs) == 0) {
        return unknown_key(path, entry, *verbs);
      }
      // TOML itself refuses equal keys; these are two spellings of one option.
      const auto [first, is_new] = seen.emplace(std::pair{std::string_view(entry.section), option->name}, &entry);
      if (!is_new) {
        return fail(ErrorKind::kUsage,
                    fmt::format("{}: {} is {} of line {} again; keep one of them", place(path, entry), entry.key,
                                first->second->key, first->second->line));
      }
      if (entry.is_array && !option->repeats) {
        return fail(ErrorKind::kUsage,
                    fmt::format("{}: {} takes one value and no array", place(path, entry), entry.key));
      }
      if ((option->verbs & verb_) == 0 || (in_section && *verbs != verb_)) continue;
      add(*option, {fmt::format("{}", fmt::join(entry.values, std::string(1, option->joint))),
                    fmt::format("{}: {}", place(path, entry), entry.key)});
    }
  }
  return {};
}

Result<void> Settings::apply(SweepOptions& options) const {
  for (const OptionSpec& option : option_table()) {
    const Setting* setting = find(option.name);
    if (setting == nullptr || option.apply == nullptr || (option.verbs & verb_) == 0) continue;
    if (auto ok = option.apply(options, *setting); !ok) return ok;
  }
  return {};
}

}  // namespace attnbench::cli
