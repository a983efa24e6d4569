// One line per option: its name, its help, the verbs that take it, and how its text becomes a value.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bench/base/error.hpp"
#include "bench/cli/options.hpp"

namespace attnbench::cli {

/// Verbs as bits, for OptionSpec::verbs.
namespace verb {
inline constexpr unsigned kSweep = 1;
inline constexpr unsigned kReport = 2;
inline constexpr unsigned kVerify = 4;
inline constexpr unsigned kGbench = 8;
inline constexpr unsigned kList = 16;
inline constexpr unsigned kExplain = 32;
inline constexpr unsigned kDoctor = 64;
inline constexpr unsigned kVersion = 128;
inline constexpr unsigned kFsdp = 256;
inline constexpr unsigned kCompare = 512;
inline constexpr unsigned kNoise = 1024;
inline constexpr unsigned kSampling = kSweep | kNoise;
inline constexpr unsigned kMeasuring = kSampling | kGbench;
}  // namespace verb

/// A value and how the user named it: "--seq-len", "ATTNBENCH_SEQ_LEN" or "ci.toml: seq-len".
struct Setting {
  std::string value;
  std::string source;
};

struct OptionSpec {
  std::string_view name;     // without the dashes
  std::string_view alias;    // another spelling, or empty
  std::string_view metavar;  // empty: a switch, on when given
  std::string_view group;
  std::string_view help;
  unsigned verbs = 0;
  bool repeats = false;  // given twice, the values are joined by `joint`; otherwise the last one counts
  char joint = ',';
  base::Result<void> (*apply)(SweepOptions& options, const Setting& setting) = nullptr;  // null: parse.cpp handles it
  /// The value that `options` hold, as the help of a verb shows it; null where nothing is set by default.
  std::string (*shown)(const SweepOptions& options, unsigned verb) = nullptr;
};

/// The sentence of the option and, in brackets, the default that its field of SweepOptions has.
std::string help_of(const OptionSpec& option, unsigned verb);

/// Every option of every verb but --help and --version. SweepOptions has a field for each value that options give.
/// A name may appear twice, for different verbs.
std::span<const OptionSpec> option_table();

/// Those that the fsdp verb alone takes; a part of the table above.
std::span<const OptionSpec> fsdp_option_table();

/// Those of compare and noise, and --emit; a part of it too.
std::span<const OptionSpec> compare_option_table();

/// Rules that join several options: sample counts in order, writers that write to places of their own, --resume with
/// --out.
base::Result<void> check_together(const SweepOptions& options);

}  // namespace attnbench::cli
