// Kernel names against the catalog, exclude rules against cases.
#include "bench/plan/select.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bench/base/suggest.hpp"
#include "bench/plan/axis.hpp"

namespace attnbench::plan {
namespace {

using base::ErrorKind;
using base::fail;
using cli::ExcludeRule;
using cli::KernelChoice;
using kernels::KernelInfo;

bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<std::string_view> names(std::span<const Candidate> candidates) {
  std::vector<std::string_view> result;
  for (const Candidate& candidate : candidates) {
    for (const KernelInfo* kernel : candidate.kernels) {
      if (!contains(result, kernel->name)) result.push_back(kernel->name);
    }
  }
  return result;
}

std::vector<std::string_view> variants(std::span<const Candidate> candidates, const std::string& name) {
  std::vector<std::string_view> result;
  for (const Candidate& candidate : candidates) {
    for (const KernelInfo* kernel : candidate.kernels) {
      if (kernel->name == name) result.push_back(kernel->variant);
    }
  }
  return result;
}

std::string ids(std::span<const Candidate> candidates) {
  std::string text;
  for (const Candidate& candidate : candidates) text += (text.empty() ? "" : ", ") + candidate.facts.id;
  return text;
}

bool number_in(std::int64_t number, const std::string& value) {
  const auto interval = parse_interval(value, kTermLimits);
  return interval && interval->low <= number && number <= interval->high;
}

bool holds(const Case& c, const ExcludeRule::Term& term) {
  const kernels::Problem& p = c.problem;
  if (term.axis == "kernel") return c.kernel == term.value;
  if (term.axis == "variant") return c.variant == term.value;
  if (term.axis == "device") return c.device == term.value || c.device.substr(0, c.device.find(':')) == term.value;
  if (term.axis == "dtype") return to_string(p.dtype) == term.value;
  if (term.axis == "pass") return to_string(c.pass) == term.value;
  if (term.axis == "cache") return to_string(c.cache) == term.value;
  if (term.axis == "causal") return p.causal == (term.value == "on" || term.value == "1" || term.value == "true");
  if (term.axis == "batch") return number_in(p.batch, term.value);
  if (term.axis == "heads") return number_in(p.heads, term.value);
  if (term.axis == "kv_heads") return number_in(p.kv_heads, term.value);
  if (term.axis == "d_model") return number_in(c.d_model, term.value);
  if (term.axis == "window") return number_in(p.window_left, term.value);
  if (term.axis == "seq_len") return number_in(p.seq_q, term.value);
  if (term.axis == "seq_len_k") return number_in(p.seq_k, term.value);
  if (term.axis == "threads") return number_in(c.threads, term.value);
  ATTNBENCH_ENSURE(false, "exclude terms are checked by the parser");
  return false;
}

}  // namespace

bool matches(const KernelInfo& kernel, const KernelChoice& choice) {
  return kernel.name == choice.name && (choice.variant.empty() || kernel.variant == choice.variant);
}

std::vector<KernelChoice> choices_on(const cli::SweepOptions& options, const Candidate& candidate) {
  std::vector<KernelChoice> choices;
  if (options.axes.kernels.empty()) {
    for (const std::string_view name : names(std::span(&candidate, 1))) {
      if (cli::runs_unnamed(candidate.facts.kind, name)) choices.push_back({std::string(name), ""});
    }
    return choices;
  }
  for (const KernelChoice& choice : options.axes.kernels) {
    const auto has = [&](const KernelInfo* kernel) { return matches(*kernel, choice); };
    if (std::any_of(candidate.kernels.begin(), candidate.kernels.end(), has)) choices.push_back(choice);
  }
  return choices;
}

base::Result<void> check_kernels(const cli::SweepOptions& options, std::span<const Candidate> candidates) {
  const std::vector<std::string_view> known = names(candidates);
  for (const KernelChoice& choice : options.axes.kernels) {
    if (!contains(known, choice.name)) {
      return fail(ErrorKind::kUsage, fmt::format("--kernels: {} has no kernel \"{}\"{}", ids(candidates), choice.name,
                                                 base::did_you_mean(choice.name, known)));
    }
    const std::vector<std::string_view> forms = variants(candidates, choice.name);
    if (!choice.variant.empty() && !contains(forms, choice.variant)) {
      return fail(ErrorKind::kUsage,
                  fmt::format("--kernels: {} on {} has no variant \"{}\"{}", choice.name, ids(candidates),
                              choice.variant, base::did_you_mean(choice.variant, forms)));
    }
  }
  if (options.baseline != cli::SweepOptions{}.baseline && !contains(known, options.baseline)) {
    return fail(ErrorKind::kUsage, fmt::format("--baseline: {} has no kernel \"{}\"{}", ids(candidates),
                                               options.baseline, base::did_you_mean(options.baseline, known)));
  }
  return {};
}

bool excluded(const Case& candidate, std::span<const ExcludeRule> rules) {
  return std::any_of(rules.begin(), rules.end(), [&](const ExcludeRule& rule) {
    return std::all_of(rule.terms.begin(), rule.terms.end(),
                       [&](const ExcludeRule::Term& term) { return holds(candidate, term); });
  });
}

}  // namespace attnbench::plan
