// `attnbench compare`: two runs, paired row by row, and whether the gate is passed. Needs no device.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench/cli/print.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/cli/writers.hpp"
#include "reports/compare_text.hpp"
#include "reports/launches.hpp"
#include "reports/noise_json.hpp"
#include "reports/self_test.hpp"

namespace attnbench::cli {
namespace {

using base::Result;

int complain(const base::Error& error) {
  print_to(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

/// The documents of one side; their warnings are printed.
Result<std::vector<reports::Document>> load(const std::string& path) {
  auto documents = reports::load_launches(path);
  if (!documents) return documents;
  for (const reports::Document& document : *documents) {
    for (const std::string& warning : document.warnings) print_to(stderr, "warning: {}\n", warning);
  }
  return documents;
}

/// Floors of the file, and a warning where they were measured on another machine than the rows were.
Result<void> add_noise(reports::CompareOptions& options, const std::string& path,
                       const std::vector<reports::Document>& base) {
  if (path.empty()) return {};
  const auto noise = reports::load_noise(path);
  if (!noise) return tl::unexpected(noise.error());
  for (const auto& [key, row] : noise->rows) options.floors_pct[key] = row.floor_pct;
  const auto from_there = [&](const reports::Row& row) {
    return row.fingerprint.empty() || row.fingerprint == noise->fingerprint;
  };
  for (const reports::Document& document : base) {
    if (noise->fingerprint.empty() || std::all_of(document.rows.begin(), document.rows.end(), from_there)) continue;
    print_to(stderr, "warning: --noise {} was measured on another machine than {}\n", path, document.source);
  }
  return {};
}

Result<reports::CompareOptions> gate_options(const CompareOptions& options,
                                             const std::vector<reports::Document>& base) {
  reports::CompareOptions result;
  for (const std::string& text : options.comparing.gates) {
    const auto gate = reports::parse_gate(text);
    if (!gate) return tl::unexpected(gate.error());
    result.gates.push_back(*gate);
  }
  result.alpha = options.comparing.alpha;
  result.floor_pct = options.comparing.floor_pct;
  result.allowed = options.comparing.allowed;
  if (auto ok = add_noise(result, options.comparing.noise_file, base); !ok) return tl::unexpected(ok.error());
  return result;
}

/// Where each format goes: --emit, and the options that are formats by themselves.
std::vector<EmitTarget> targets_of(const Outputs& outputs) {
  std::vector<EmitTarget> targets = outputs.emit;
  for (const auto& [format, path] : {std::pair{"csv", &outputs.csv}, {"json", &outputs.json}, {"md", &outputs.md}}) {
    if (!path->empty()) targets.push_back({format, *path});
  }
  return targets;
}

Result<void> check_formats(const Outputs& outputs) {
  for (const EmitTarget& target : outputs.emit) {
    if (auto known = reports::emit_comparison(target.format, {}, false); !known) {
      return base::fail(known.error().kind, "--emit: " + known.error().message);
    }
  }
  return {};
}

/// What the exit code would not say.
void warn(const reports::Comparison& comparison, bool strict) {
  using reports::Verdict;
  for (const Verdict verdict : {Verdict::kInconclusive, Verdict::kAdded, Verdict::kRemoved}) {
    const auto found = comparison.counts.find(verdict);
    if (found == comparison.counts.end() || strict) continue;
    print_to(stderr, "warning: {} {} {}; --strict would exit with 1\n", found->second,
             found->second == 1 ? "row is" : "rows are", to_string(verdict));
  }
  std::string names;
  for (const reports::Difference& difference : comparison.differences) {
    if (!difference.allowed) names += (names.empty() ? "" : ",") + std::string(difference.column->name);
  }
  if (!names.empty()) {
    print_to(stderr, "error: the runs were made by different set-ups, so the gate is closed; --allow {} opens it\n",
             names);
  }
}

int self_test_verb(const std::vector<reports::Document>& run, const reports::CompareOptions& options) {
  bool passed = true;
  std::string text = fmt::format("self-test of the gate on {}\n", run.front().source);
  for (const reports::Trial& trial : reports::self_test(run, options)) {
    text += fmt::format("{}  {}: {}\n", trial.passed ? "passed" : "FAILED", trial.name, trial.found);
    passed = passed && trial.passed;
  }
  text += passed ? "the gate trips when it should, and not when it should not\n"
                 : "the gate cannot be relied on for these rows\n";
  const auto written = reports::write_output("-", text);
  if (!written) return complain(written.error());
  return passed ? base::exit_code::kOk : base::exit_code::kGateFailed;
}

int print_comparison(const reports::Comparison& comparison, const CompareOptions& options) {
  const bool strict = options.comparing.strict;
  for (const EmitTarget& target : targets_of(options.outputs)) {
    const auto bytes = reports::emit_comparison(target.format, comparison, strict);
    if (!bytes) return complain(bytes.error());
    if (auto ok = reports::write_format(target.format, target.path, *bytes); !ok) return complain(ok.error());
  }
  std::FILE* const people = options.outputs.owns_stdout() ? stderr : stdout;
  if (!options.outputs.quiet) {
    const int descriptor = ::fileno(people);
    const reports::TableStyle style{use_color(options.outputs.color, descriptor), terminal_width(descriptor)};
    print_to(people, "{}", reports::compare_table(comparison, style));
    std::fflush(people);
  }
  warn(comparison, strict);
  return reports::compare_exit_code(comparison, strict);
}

}  // namespace

int compare_verb(const CompareOptions& options) {
  if (auto ok = check_formats(options.outputs); !ok) return complain(ok.error());
  for (const std::string& side : {options.base, options.next}) {
    if (auto ok = check_writers(options.outputs, side); !ok) return complain(ok.error());
  }
  std::vector<reports::Document> base{reports::made_up_run()};
  if (!options.base.empty()) {
    auto loaded = load(options.base);
    if (!loaded) return complain(loaded.error());
    base = std::move(*loaded);
  }
  const auto gates = gate_options(options, base);
  if (!gates) return complain(gates.error());
  if (options.comparing.self_test) return self_test_verb(base, *gates);
  const auto next = load(options.next);
  if (!next) return complain(next.error());
  return print_comparison(reports::compare(base, *next, *gates), options);
}

}  // namespace attnbench::cli
