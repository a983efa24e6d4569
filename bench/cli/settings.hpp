// Where option values come from beside flags: settings of one verb, layered by precedence. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/cli/config_file.hpp"
#include "bench/cli/option_table.hpp"
#include "bench/cli/parse.hpp"

namespace attnbench::cli {

/// Values by option name; what is set first stays, so layers are added from the strongest to the weakest.
class Settings {
 public:
  explicit Settings(unsigned verb_bit) : verb_(verb_bit) {}

  void add(const OptionSpec& option, Setting setting) { values_.emplace(std::string(option.name), std::move(setting)); }
  const Setting* find(std::string_view option) const;

  void add_environment(const Environment& environment);  // of variables that check_environment has seen

  /// Top-level keys are for every verb (a key that only other verbs know is skipped), [verb] sections for that one.
  /// Arrays are joined as a flag that is given several times is. Error, with the line: a key that no verb knows, or
  /// that is not an option of its section's verb; an option that is given twice; an array where one value is taken.
  base::Result<void> add_config(const std::string& path, const std::vector<ConfigEntry>& entries);

  /// Sets every value in the order of the table.
  base::Result<void> apply(SweepOptions& options) const;

 private:
  unsigned verb_;
  std::map<std::string, Setting, std::less<>> values_;
};

/// Every variable stands for an option of some verb, or belongs to the scripts, the build or the tests.
/// Error: kUsage for another one, with the nearest, and for two variables that stand for one option.
base::Result<void> check_environment(const Environment& environment);

/// Option of one of the verbs by name or alias, with - or _; null when there is none.
const OptionSpec* find_option(std::string_view name, unsigned verb_bits = ~0u);

/// Names of the options that a verb takes.
std::vector<std::string_view> option_names(unsigned verb_bits);

/// Bit of a verb by its name, 0 for another word.
unsigned verb_bit(std::string_view name);

}  // namespace attnbench::cli
