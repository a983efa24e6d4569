// The only file with CLI11: it splits arguments into options and words and renders the help; values are parsed
// elsewhere.
#include "bench/cli/parse.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "bench/base/suggest.hpp"
#include "bench/cli/config_file.hpp"
#include "bench/cli/settings.hpp"
#include "bench/cli/version_text.hpp"
#include "bench/cli/words.hpp"

extern char** environ;

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

struct VerbSpec {
  std::string_view name;
  std::string_view help;
  std::string_view positional;  // metavar of its word, or empty
  std::string_view positional_help;
  bool positional_required = false;
  std::string_view second = {};  // metavar of a second word, or empty
  std::string_view second_help = {};
};

constexpr std::array<VerbSpec, 11> kVerbs{{
    {"sweep", "Measure every point of a plan; each row is kept as it finishes", "", "", false},
    {"report", "Print or convert the rows of an earlier sweep", "RUN", "a run directory, or a rows.jsonl", true},
    {"verify", "Check every kernel against reference tensors", "DIR", "a folder of safetensors files", true},
    {"fsdp", "Train a sharded transformer at every world size; each row is kept as it finishes", "", "", false},
    {"compare", "Say which rows of a run got slower than in an earlier one; exit 1 if any did", "BASE",
     "a run, or a folder of several launches of one plan", true, "NEW",
     "another run of that plan, or a folder of its launches"},
    {"noise", "Run a plan several times and write how much each row moves by itself", "", "", false},
    {"gbench", "Run the planned points as a Google Benchmark program", "", "", false},
    {"list", "List kernels, devices or columns", "WHAT", "kernels, devices or columns", true},
    {"explain", "Say what a column means and how it is computed", "COLUMN", "see list columns", true},
    {"doctor", "Say what was found here, what is missing, what to type", "", "", false},
    {"version", "Say what this binary was built from", "", "", false},
}};

constexpr std::string_view kGrammar =
    "Values of a LIST:  256,1k,4k   256:1024:256   256:4096:x2   2^8..2^12   (k = Ki = 1024, M = Mi = 1024 * 1024)\n"
    "Every option can also be ATTNBENCH_<OPTION> (ATTNBENCH_SEQ_LEN=4k) or a key of --config FILE (seq-len = \"4k\",\n"
    "at the top or under [VERB]). A flag wins over the environment, that over the file, that over the default.";

constexpr std::string_view kExamples =
    "Start with:  attnbench sweep            the reference grid on the best device, in a few minutes\n"
    "             attnbench sweep --dry-run  what that would be\n"
    "             attnbench sweep --help     every axis and option\n"
    "Exit codes:  0 fine, 1 gate failed, 2 usage, 3 a row incorrect or failed, or an output not written,\n"
    "             4 backend absent, 5 unreadable input, 124 time limit, 129/130/143 interrupted with results kept";

/// As CLI11's own, but an option that may repeat shows its metavar alone, without "...".
class PlainFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    return type.empty() ? "" : " " + type;
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return "Usage: " + (name.empty() ? "attnbench" : name) + usage_words(app) + "\n";
  }

 private:
  static std::string usage_words(const CLI::App* app) {
    std::string words = app->get_parent() == nullptr ? " VERB" : "";
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) words += " " + option->get_type_name();
    }
    return words + " [options]";
  }
};

/// What CLI11 stores into: option values by name, and the verb's word. Addresses must stay put.
struct Sink {
  std::map<std::string, std::vector<std::string>> values;
  std::map<std::string, bool> switches;
  std::string word, second;
};

/// Arguments of the program, those for Google Benchmark apart.
struct Split {
  std::vector<std::string> own;
  std::vector<std::string> benchmark;
};

Split split(std::span<const std::string> arguments) {
  Split result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      result.benchmark.insert(result.benchmark.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                              arguments.end());
      break;
    }
    if (argument.rfind("--benchmark_", 0) == 0) {
      result.benchmark.push_back(argument);
      continue;
    }
    // --seq_len is --seq-len: columns are written with _, and people copy them.
    std::string dashed = argument;
    if (argument.rfind("--", 0) == 0) {
      std::replace(dashed.begin(),
                   dashed.begin() + static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size())), '_',
                   '-');
    }
    result.own.push_back(std::move(dashed));
  }
  return result;
}

/// Options are added for the verb in use alone: those of all eleven would be most of the time of --help.
void add_verb(CLI::App& app, const VerbSpec& spec, bool in_use, Sink& sink) {
  CLI::App* verb = app.add_subcommand(std::string(spec.name), std::string(spec.help));
  if (!in_use) return;
  verb->allow_extras();
  if (!spec.positional.empty()) {
    verb->add_option("word", sink.word, std::string(spec.positional_help))->type_name(std::string(spec.positional));
  }
  if (!spec.second.empty()) {
    verb->add_option("second", sink.second, std::string(spec.second_help))->type_name(std::string(spec.second));
  }
  const unsigned bit = verb_bit(spec.name);
  for (const OptionSpec& option : option_table()) {
    if ((option.verbs & bit) == 0) continue;
    std::string names = "--" + std::string(option.name);
    if (!option.alias.empty()) names += ",--" + std::string(option.alias);
    const std::string name(option.name);
    if (option.metavar.empty()) {
      verb->add_flag(names, sink.switches[name], help_of(option, bit))->group(std::string(option.group));
      continue;
    }
    verb->add_option(names, sink.values[name], help_of(option, bit))
        ->allow_extra_args(false)
        ->type_name(std::string(option.metavar))
        ->group(std::string(option.group));
  }
  if ((bit & (verb::kMeasuring | verb::kFsdp)) != 0) verb->footer(std::string(kGrammar));
}

std::vector<std::string_view> verb_names() {
  std::vector<std::string_view> names;
  for (const VerbSpec& spec : kVerbs) names.push_back(spec.name);
  return names;
}

/// The first argument must be a verb (or a flag of the program).
Result<void> check_verb(const std::vector<std::string>& arguments) {
  if (arguments.empty() || verb_bit(arguments.front()) != 0) return {};
  const std::string& word = arguments.front();
  if (word.rfind("-", 0) != 0) {
    return fail(ErrorKind::kUsage, fmt::format("unknown verb \"{}\"{}", word, base::did_you_mean(word, verb_names())));
  }
  static constexpr std::array<std::string_view, 3> kFlags{"--help", "--version", "-h"};
  if (std::find(kFlags.begin(), kFlags.end(), word) != kFlags.end()) return {};
  const std::string name = word.substr(word.find_first_not_of('-') == std::string::npos ? 0 : 2, word.find('=') - 2);
  const OptionSpec* option = find_option(name, verb::kSweep);
  if (option == nullptr) option = find_option(name);
  if (option != nullptr) {
    return fail(ErrorKind::kUsage, fmt::format("a verb comes first; try attnbench {} {}",
                                               (option->verbs & verb::kSweep) != 0 ? "sweep" : "VERB", word));
  }
  return fail(ErrorKind::kUsage, fmt::format("unknown option {}; try attnbench --help", word));
}

/// What CLI11 did not recognise: the first of it, and what was meant.
Result<void> check_rest(const std::vector<std::string>& rest, const VerbSpec& spec) {
  if (rest.empty()) return {};
  const std::string& word = rest.front();
  if (word.rfind("-", 0) != 0) {
    const std::string takes = spec.positional.empty() ? "takes no word"
                              : spec.second.empty()   ? "takes one word"
                                                      : "takes two words";
    return fail(ErrorKind::kUsage,
                fmt::format("{} {}: \"{}\" is left over; see attnbench {} --help", spec.name, takes, word, spec.name));
  }
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> spelled;
  for (const std::string_view known : option_names(verb_bit(spec.name))) spelled.push_back("--" + std::string(known));
  const std::vector<std::string_view> known(spelled.begin(), spelled.end());
  const std::string_view match = base::nearest(name, known);
  const std::string hint =
      match.empty() ? fmt::format("; see attnbench {} --help", spec.name) : fmt::format("; did you mean {}?", match);
  return fail(ErrorKind::kUsage, fmt::format("{} has no option {}{}", spec.name, name, hint));
}

/// The values of --quiet=WORD and the like, before CLI11 says of a wrong one that it could not convert it.
Result<void> check_switches(std::span<const std::string> arguments) {
  for (const std::string& word : arguments) {
    const std::size_t equals = word.find('=');
    if (word.rfind("--", 0) != 0 || equals == std::string::npos) continue;
    const std::string name = word.substr(0, equals);
    const OptionSpec* option = find_option(name.substr(2));
    if (option == nullptr || !option->metavar.empty()) continue;
    const std::string value = word.substr(equals + 1);
    const auto parsed = parse_switch(value);
    if (!parsed) return fail(ErrorKind::kUsage, plan::show(parsed.error(), name, value));
  }
  return {};
}

void add_flags(Settings& settings, const CLI::App& verb, const Sink& sink, unsigned bit) {
  for (const OptionSpec& option : option_table()) {
    if ((option.verbs & bit) == 0) continue;
    const std::string spelled = "--" + std::string(option.name);
    if (verb.get_option(spelled)->count() == 0) continue;
    const std::string name(option.name);
    if (option.metavar.empty()) {
      settings.add(option, {sink.switches.at(name) ? "on" : "off", spelled});
      continue;
    }
    const std::vector<std::string>& values = sink.values.at(name);
    std::string value = values.back();
    if (option.repeats) value = fmt::format("{}", fmt::join(values, std::string(1, option.joint)));
    settings.add(option, {std::move(value), spelled});
  }
}

/// Every setting of a sweep as --option=value, for a program that is to take the same ones.
std::vector<std::string> as_flags(const Settings& settings) {
  std::vector<std::string> flags;
  for (const OptionSpec& option : option_table()) {
    const Setting* const setting = settings.find(option.name);
    if (setting == nullptr || option.apply == nullptr || option.name == "out" ||
        (option.verbs & (verb::kSweep & verb::kSampling)) == 0) {
      continue;
    }
    flags.push_back(fmt::format("--{}={}", option.name, setting->value));
  }
  return flags;
}

/// The words that a verb needs are there.
Result<void> check_words(const VerbSpec& spec, const SweepOptions& options, const Sink& sink) {
  const bool alone = options.comparing.self_test;  // BASE may stay out, and NEW has no part in it
  if (alone && !sink.second.empty()) {
    return fail(ErrorKind::kUsage, fmt::format("--self-test takes one run; leave {} out", sink.second));
  }
  if (alone || spec.positional.empty()) return {};
  const bool first = sink.word.empty();
  if (!first && (spec.second.empty() || !sink.second.empty())) return {};
  const std::string example = spec.name == "list" ? "kernels"
                              : spec.second.empty()
                                  ? std::string(spec.positional)
                                  : fmt::format("{} {}", first ? spec.positional : sink.word, spec.second);
  return fail(ErrorKind::kUsage,
              fmt::format("{0} needs {1}: {2}; try attnbench {0} {3}", spec.name, first ? spec.positional : spec.second,
                          first ? spec.positional_help : spec.second_help, example));
}

Result<Command> command_of(const VerbSpec& spec, SweepOptions options, const Sink& sink, const Split& arguments,
                           const Settings& settings) {
  const unsigned bit = verb_bit(spec.name);
  if (bit != verb::kGbench && !arguments.benchmark.empty()) {
    return fail(ErrorKind::kUsage, fmt::format("{} belongs to gbench; try attnbench gbench {}",
                                               arguments.benchmark.front(), arguments.benchmark.front()));
  }
  if (auto ok = check_words(spec, options, sink); !ok) return tl::unexpected(ok.error());
  switch (bit) {
    case verb::kSweep:
      return options;
    case verb::kReport:
      return ReportOptions{sink.word, options.outputs, options.baseline};
    case verb::kVerify:
      return VerifyOptions{sink.word,          options.axes.kernels, options.devices,
                           options.axes.dtype, options.outputs,      options.command};
    case verb::kFsdp: {
      return FsdpCommand{
          std::move(options.fsdp), std::move(options.outputs), options.seed, options.dry_run, options.try_oom,
          options.command};
    }
    case verb::kCompare:
      return CompareOptions{sink.word, sink.second, std::move(options.comparing), std::move(options.outputs)};
    case verb::kNoise:
      return NoiseOptions{as_flags(settings), options.noise_launches, options.outputs.out_dir, options.noise_file};
    case verb::kGbench:
      return GbenchOptions{std::move(options), arguments.benchmark};
    case verb::kList:
      return ListOptions{sink.word, options.devices};
    case verb::kExplain:
      return ExplainOptions{sink.word};
    case verb::kDoctor:
      return DoctorOptions{};
    default:
      return Printout{version_text()};
  }
}

/// The command line as somebody would type it again.
std::string typed(std::span<const std::string> arguments) {
  std::string text = "attnbench";
  for (const std::string& argument : arguments) {
    const bool plain = !argument.empty() && argument.find_first_of(" \t\n'\"\\$`*?;&|<>()[]{}!#~") == std::string::npos;
    std::string quoted = argument;
    for (std::size_t at = quoted.find('\''); at != std::string::npos; at = quoted.find('\'', at + 4)) {
      quoted.replace(at, 1, "'\\''");
    }
    text += plain ? " " + argument : " '" + quoted + "'";
  }
  return text;
}

Result<Command> parse_verb(CLI::App& app, const Sink& sink, const Split& arguments, const Environment& environment,
                           std::string command) {
  const CLI::App* verb = app.get_subcommands().front();
  const VerbSpec& spec =
      *std::find_if(kVerbs.begin(), kVerbs.end(), [&](const VerbSpec& v) { return v.name == verb->get_name(); });
  if (auto ok = check_rest(verb->remaining(), spec); !ok) return tl::unexpected(ok.error());
  const unsigned bit = verb_bit(spec.name);
  if (bit != verb::kVersion) {  // which, as help does, answers whatever is around it
    if (auto ok = check_environment(environment); !ok) return tl::unexpected(ok.error());
  }
  Settings settings(bit);
  add_flags(settings, *verb, sink, bit);
  settings.add_environment(environment);
  if (const Setting* config = settings.find("config")) {
    const auto entries = read_config(config->value);
    if (!entries) return tl::unexpected(entries.error());
    if (auto ok = settings.add_config(config->value, *entries); !ok) return tl::unexpected(ok.error());
  }
  SweepOptions options;
  options.command = std::move(command);
  if (auto ok = settings.apply(options); !ok) return tl::unexpected(ok.error());
  if (auto ok = check_together(options); !ok) return tl::unexpected(ok.error());
  return command_of(spec, std::move(options), sink, arguments, settings);
}

}  // namespace

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (text.rfind("ATTNBENCH_", 0) == 0 && equals != std::string_view::npos) {
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

Result<Command> parse(std::span<const std::string> arguments, const Environment& environment) {
  Split parts = split(arguments);
  if (auto ok = check_verb(parts.own); !ok) return tl::unexpected(ok.error());
  if (auto ok = check_switches(parts.own); !ok) return tl::unexpected(ok.error());
  CLI::App app("Measures attention kernels: latency, memory and accuracy, forward and backward.", "attnbench");
  app.formatter(std::make_shared<PlainFormatter>());
  app.get_formatter()->column_width(24);
  app.set_help_flag("-h,--help", "This text");
  app.footer(std::string(kExamples));
  bool version = false;
  app.add_flag("--version", version, "What this binary was built from");
  Sink sink;
  const std::string_view used = parts.own.empty() ? std::string_view() : std::string_view(parts.own.front());
  for (const VerbSpec& spec : kVerbs) add_verb(app, spec, spec.name == used, sink);
  app.require_subcommand(0, 1);
  try {
    std::vector<std::string> reversed(parts.own.rbegin(), parts.own.rend());
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return Printout{app.help()};
  } catch (const CLI::ParseError& error) {
    return fail(ErrorKind::kUsage, error.what());
  }
  if (version) return Printout{version_text()};
  if (app.get_subcommands().empty()) return Printout{app.help()};
  return parse_verb(app, sink, parts, environment, typed(arguments));
}

}  // namespace attnbench::cli
