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

/// NAME or NAME:VARIANT, as the parser left it.
KernelChoice choice_of(const std::string& word) {
  const std::size_t colon = word.find(':');
  return {word.substr(0, colon), colon == std::string::npos ? "" : word.substr(colon + 1)};
}

base::Result<void> check_choice(std::string_view option, const KernelChoice& choice,
                                std::span<const Candidate> candidates) {
  const std::vector<std::string_view> known = names(candidates);
  if (!contains(known, choice.name)) {
    return fail(ErrorKind::kUsage, fmt::format("{}: {} has no kernel \"{}\"{}", option, ids(candidates), choice.name,
                                               base::did_you_mean(choice.name, known)));
  }
  const std::vector<std::string_view> forms = variants(candidates, choice.name);
  if (choice.variant.empty() || contains(forms, choice.variant)) return {};
  return fail(ErrorKind::kUsage,
              fmt::format("{}: {} on {} has no variant \"{}\"{}", option, choice.name, ids(candidates), choice.variant,
                          base::did_you_mean(choice.variant, forms)));
}

/// A variant that a rule names is one of the kernel of that rule, or of some kernel where it names none.
base::Result<void> check_variant(const ExcludeRule& rule, const std::string& variant,
                                 std::span<const Candidate> candidates) {
  std::string named;
  for (const ExcludeRule::Term& term : rule.terms) {
    if (term.axis == "kernel") named = choice_of(term.value).name;
  }
  std::vector<std::string_view> known;
  for (const std::string_view name : names(candidates)) {
    if (!named.empty() && name != named) continue;
    for (const std::string_view form : variants(candidates, std::string(name))) {
      if (!contains(known, form)) known.push_back(form);
    }
  }
  if (contains(known, variant)) return {};
  return fail(ErrorKind::kUsage,
              fmt::format("--exclude: no kernel {}on {} has a variant \"{}\"{}", named.empty() ? "" : named + " ",
                          ids(candidates), variant, base::did_you_mean(variant, known)));
}

bool number_in(std::int64_t number, const std::string& value) {
  const auto interval = parse_interval(value, kTermLimits);
  return interval && interval->low <= number && number <= interval->high;
}

bool holds(const Case& c, const ExcludeRule::Term& term) {
  const kernels::Problem& p = c.problem;
  if (term.axis == "kernel") {
    const KernelChoice choice = choice_of(term.value);
    return c.kernel == choice.name && (choice.variant.empty() || c.variant == choice.variant);
  }
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

base::Result<void> check_choices(std::span<const KernelChoice> choices, std::span<const Candidate> candidates) {
  for (const KernelChoice& choice : choices) {
    if (auto ok = check_choice("--kernels", choice, candidates); !ok) return ok;
  }
  return {};
}

base::Result<void> check_kernels(const cli::SweepOptions& options, std::span<const Candidate> candidates) {
  if (auto ok = check_choices(options.axes.kernels, candidates); !ok) return ok;
  if (options.baseline != cli::SweepOptions{}.baseline) {
    if (auto ok = check_choice("--baseline", choice_of(options.baseline), candidates); !ok) return ok;
  }
  for (const ExcludeRule& rule : options.axes.exclude) {
    for (const ExcludeRule::Term& term : rule.terms) {
      if (term.axis == "kernel") {
        if (auto ok = check_choice("--exclude", choice_of(term.value), candidates); !ok) return ok;
      } else if (term.axis == "variant") {
        if (auto ok = check_variant(rule, term.value, candidates); !ok) return ok;
      }
    }
  }
  return {};
}

base::Result<void> check_timing(const cli::SweepOptions& options, std::span<const Candidate> candidates) {
  const kernels::Timing asked = options.sampling.timing;
  if (asked == kernels::Timing::kAuto) return {};
  for (const Candidate& candidate : candidates) {
    const std::vector<kernels::Timing> known = cli::timings_of(candidate.facts.kind);
    if (std::find(known.begin(), known.end(), asked) != known.end()) continue;
    std::string words = "auto";
    for (const kernels::Timing timing : known) words += fmt::format(" or {}", to_string(timing));
    return fail(ErrorKind::kUsage,
                fmt::format("--timing {} does not exist on {}; use {}", to_string(asked), candidate.facts.id, words));
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
