// attnbench list kernels | devices | columns.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <string>

#include "bench/base/suggest.hpp"
#include "bench/base/units.hpp"
#include "bench/cli/devices.hpp"
#include "bench/cli/verbs.hpp"
#include "kernels/catalog.hpp"
#include "reports/columns.hpp"

namespace attnbench::cli {
namespace {

/// A device with its kernels, or the sentence that says why it is not here.
struct Found {
  std::vector<plan::Candidate> candidates;
  std::vector<base::Error> absent;
};

/// auto lists every backend that can be measured; other words what they name.
Found find(const std::vector<std::string>& words) {
  Found found;
  for (const std::string& word :
       words == std::vector<std::string>{"auto"} ? std::vector<std::string>{"cpu", "cuda:all"} : words) {
    auto candidates = find_candidates(std::span(&word, 1));
    if (!candidates) {
      found.absent.push_back(candidates.error());
      continue;
    }
    for (plan::Candidate& candidate : *candidates) found.candidates.push_back(std::move(candidate));
  }
  return found;
}

/// 0, or the code of what was asked for by name and is not here; auto asks for nothing by name.
int finish(const Found& found, const ListOptions& options) {
  for (const base::Error& error : found.absent) std::fprintf(stderr, "absent: %s\n", error.message.c_str());
  const bool asked = options.devices != std::vector<std::string>{"auto"};
  return asked && !found.absent.empty() ? base::exit_code_of(found.absent.front().kind) : base::exit_code::kOk;
}

int list_kernels(const ListOptions& options) {
  const Found found = find(options.devices);
  std::string text = fmt::format("{:<8} {:<8} {:<12} {}\n", "kernel", "variant", "device", "summary");
  std::string_view last;
  for (const plan::Candidate& candidate : found.candidates) {
    const std::string_view device = to_string(candidate.facts.kind);
    if (device == last) continue;  // the kernels of a second GPU are those of the first
    last = device;
    for (const kernels::KernelInfo* kernel : candidate.kernels) {
      text += fmt::format("{:<8} {:<8} {:<12} {}\n{:<30} source: {}\n", kernel->name, kernel->variant, device,
                          kernel->summary, "", kernel->source);
    }
  }
  text += "--kernels NAME takes the first variant that supports a problem, --kernels NAME:VARIANT that one.\n";
  std::fputs(text.c_str(), stdout);
  return finish(found, options);
}

std::string facts_text(const kernels::DeviceFacts& facts) {
  std::string text = fmt::format("{:<8} {}\n", facts.id, facts.name);
  const auto line = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) text += fmt::format("  {:<18} {}\n", name, value);
  };
  const auto bytes = [](std::uint64_t value) {
    return value == 0 ? std::string() : base::format_bytes(static_cast<double>(value));
  };
  line(facts.kind == kernels::DeviceKind::kCuda ? "multiprocessors" : "processors",
       facts.cores > 0 ? fmt::format("{}", facts.cores) : "");
  line("instruction set", facts.isa);
  line("memory", bytes(facts.memory_total_bytes));
  line("memory free", bytes(facts.memory_free_bytes));
  line("last-level cache", bytes(facts.last_level_cache_bytes));
  line("driver", facts.driver);
  for (const auto& [name, version] : facts.libraries) line(name, version);
  return text;
}

int list_devices(const ListOptions& options) {
  const Found found = find(options.devices);
  for (const plan::Candidate& candidate : found.candidates) std::fputs(facts_text(candidate.facts).c_str(), stdout);
  return finish(found, options);
}

int list_columns() {
  for (const reports::Column& column : reports::columns()) {
    std::fputs(fmt::format("{:<20} {:<9} {}\n", column.name, column.unit, column.doc).c_str(), stdout);
  }
  return base::exit_code::kOk;
}

}  // namespace

int list_verb(const ListOptions& options) {
  if (options.what == "kernels") return list_kernels(options);
  if (options.what == "devices") return list_devices(options);
  if (options.what == "columns") return list_columns();
  static constexpr std::array<std::string_view, 3> kKnown{"kernels", "devices", "columns"};
  std::fprintf(stderr, "error: list has no \"%s\"%s\n", options.what.c_str(),
               base::did_you_mean(options.what, kKnown).c_str());
  return base::exit_code::kUsage;
}

}  // namespace attnbench::cli
