// Tables of words and the small parsers over them.
#include "bench/cli/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/base/suggest.hpp"

namespace attnbench::cli {
namespace {

using plan::SyntaxError;

tl::unexpected<SyntaxError> fail(std::size_t position, std::string message, std::string hint) {
  return tl::unexpected<SyntaxError>(SyntaxError{position, std::move(message), std::move(hint)});
}

std::string joined(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

/// The error for a word that is none of `known`: what it was, and the nearest or all of them.
tl::unexpected<SyntaxError> unknown(const Item& item, std::span<const std::string_view> known) {
  const std::string_view match = base::nearest(item.text, known);
  return fail(item.position, fmt::format("'{}' is not known", item.text),
              match.empty() ? "one of " + joined(known) : std::string(match));
}

constexpr std::array<std::string_view, 12> kAxisNames{"dtype",  "causal",  "batch",     "heads", "kv_heads", "d_model",
                                                      "window", "seq_len", "seq_len_k", "pass",  "cache",    "threads"};

std::string axis_spelling(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

bool is_numeric(std::string_view axis) {
  static constexpr std::array<std::string_view, 8> kNumeric{"batch",  "heads",   "kv_heads",  "d_model",
                                                            "window", "seq_len", "seq_len_k", "threads"};
  return std::find(kNumeric.begin(), kNumeric.end(), axis) != kNumeric.end();
}

/// Shifts the position of an error in a part of a text to the whole.
SyntaxError shifted(SyntaxError error, std::size_t offset) {
  error.position += offset;
  return error;
}

/// `word`, a part of the value, is one of `known`.
tl::expected<void, SyntaxError> one_of(std::string_view value, std::string_view word,
                                       std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return {};
  return unknown({value, 0}, known);
}

tl::expected<void, SyntaxError> check_term_value(std::string_view axis, std::string_view value) {
  const auto checked = [](const auto& parsed) -> tl::expected<void, SyntaxError> {
    if (!parsed) return tl::unexpected(parsed.error());
    return {};
  };
  if (axis == "window") return checked(plan::parse_interval(value, plan::kTermLimits));
  if (is_numeric(axis)) return checked(plan::parse_interval(value, {0, plan::kTermLimits.max, false}));
  if (axis == "dtype") return checked(parse_dtypes(value));
  if (axis == "pass") return checked(parse_passes(value));
  if (axis == "causal") return checked(parse_causal(value));
  if (axis == "cache") {
    static constexpr std::array<std::string_view, 2> kCaches{"cold", "hot"};
    return one_of(value, value, kCaches);
  }
  if (axis == "device") {
    static constexpr std::array<std::string_view, 3> kDevices{"cpu", "cuda", "mock"};
    const std::size_t colon = std::min(value.find(':'), value.size());
    const std::string_view number = value.substr(std::min(colon + 1, value.size()));
    const bool numbered = !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
    if (colon < value.size() && !numbered) return fail(colon, "a device has a number after the colon", "e.g. cuda:0");
    return one_of(value, value.substr(0, colon), kDevices);
  }
  return {};
}

tl::expected<ExcludeRule::Term, SyntaxError> parse_term(const Item& item) {
  const std::size_t equals = item.text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.text.size()) {
    return fail(item.position, "a term has the form axis=value", "e.g. kernel=naive,seq_len=16k");
  }
  static constexpr std::array<std::string_view, 3> kOthers{"kernel", "variant", "device"};
  std::vector<std::string_view> known(kAxisNames.begin(), kAxisNames.end());
  known.insert(known.end(), kOthers.begin(), kOthers.end());
  const std::string axis = axis_spelling(item.text.substr(0, equals));
  if (std::find(known.begin(), known.end(), axis) == known.end()) {
    return unknown({item.text.substr(0, equals), item.position}, known);
  }
  const std::string_view value = item.text.substr(equals + 1);
  if (auto ok = check_term_value(axis, value); !ok) {
    return tl::unexpected(shifted(ok.error(), item.position + equals + 1));
  }
  if (axis == "kernel") {
    const auto choices = parse_kernels(value);
    if (!choices) return tl::unexpected(shifted(choices.error(), item.position + equals + 1));
    const KernelChoice& choice = choices->front();
    return ExcludeRule::Term{axis, choice.variant.empty() ? choice.name : choice.name + ":" + choice.variant};
  }
  return ExcludeRule::Term{axis, std::string(value)};
}

}  // namespace

Words<Item> split_items(std::string_view text, char separator) {
  std::vector<Item> items;
  std::size_t start = 0;
  while (true) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    Item item{text.substr(start, end - start), start};
    while (!item.text.empty() && item.text.front() == ' ') {
      item.text.remove_prefix(1);
      ++item.position;
    }
    while (!item.text.empty() && item.text.back() == ' ') item.text.remove_suffix(1);
    if (item.text.empty())
      return fail(item.position, "a value is missing", fmt::format("drop the extra '{}'", separator));
    items.push_back(item);
    if (end == text.size()) return items;
    start = end + 1;
  }
}

template <typename T>
Words<T> parse_words(std::string_view text, std::span<const std::pair<std::string_view, T>> table) {
  const auto items = split_items(text);
  if (!items) return tl::unexpected(items.error());
  std::vector<T> values;
  for (const Item& item : *items) {
    const auto found = std::find_if(table.begin(), table.end(), [&](const auto& e) { return e.first == item.text; });
    if (found == table.end()) {
      std::vector<std::string_view> known;
      for (const auto& entry : table) known.push_back(entry.first);
      return unknown(item, known);
    }
    if (std::find(values.begin(), values.end(), found->second) == values.end()) values.push_back(found->second);
  }
  return values;
}

Words<kernels::Dtype> parse_dtypes(std::string_view text) {
  using kernels::Dtype;
  static constexpr std::array<std::pair<std::string_view, Dtype>, 3> kTable{
      {{"fp32", Dtype::kFp32}, {"bf16", Dtype::kBf16}, {"fp16", Dtype::kFp16}}};
  return parse_words<Dtype>(text, kTable);
}

Words<kernels::Pass> parse_passes(std::string_view text) {
  using kernels::Pass;
  static constexpr std::array<std::pair<std::string_view, Pass>, 3> kTable{
      {{"fwd", Pass::kFwd}, {"bwd", Pass::kBwd}, {"fwd_bwd", Pass::kFwdBwd}}};
  return parse_words<Pass>(text, kTable);
}

Words<bool> parse_causal(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, bool>, 6> kTable{
      {{"on", true}, {"off", false}, {"1", true}, {"0", false}, {"true", true}, {"false", false}}};
  return parse_words<bool>(text, kTable);
}

Words<kernels::CacheState> parse_cache(std::string_view text) {
  using kernels::CacheState;
  if (text == "both") return std::vector<CacheState>{CacheState::kCold, CacheState::kHot};
  static constexpr std::array<std::pair<std::string_view, CacheState>, 2> kTable{
      {{"cold", CacheState::kCold}, {"hot", CacheState::kHot}}};
  return parse_words<CacheState>(text, kTable);
}

tl::expected<kernels::Timing, SyntaxError> parse_timing(std::string_view text) {
  using kernels::Timing;
  static constexpr std::array<std::pair<std::string_view, Timing>, 5> kTable{{{"auto", Timing::kAuto},
                                                                              {"wall", Timing::kWall},
                                                                              {"events", Timing::kEvents},
                                                                              {"graph", Timing::kGraph},
                                                                              {"declared", Timing::kDeclared}}};
  const auto values = parse_words<Timing>(text, kTable);
  if (!values) return tl::unexpected(values.error());
  if (values->size() != 1) return fail(text.find(','), "one value is taken", "e.g. auto");
  return values->front();
}

tl::expected<bool, SyntaxError> parse_switch(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, bool>, 8> kTable{{{"true", true},
                                                                            {"false", false},
                                                                            {"on", true},
                                                                            {"off", false},
                                                                            {"yes", true},
                                                                            {"no", false},
                                                                            {"1", true},
                                                                            {"0", false}}};
  const auto values = parse_words<bool>(text, kTable);
  if (!values) return tl::unexpected(values.error());
  if (values->size() != 1) return fail(text.find(','), "one value is taken", "on or off");
  return values->front();
}

Words<KernelChoice> parse_kernels(std::string_view text) {
  const auto items = split_items(text);
  if (!items) return tl::unexpected(items.error());
  std::vector<KernelChoice> choices;
  for (const Item& item : *items) {
    const std::size_t colon = item.text.find(':');
    KernelChoice choice{std::string(item.text.substr(0, colon)), ""};
    if (colon != std::string_view::npos) choice.variant = item.text.substr(colon + 1);
    if (choice.name.empty() || (colon != std::string_view::npos && choice.variant.empty())) {
      return fail(item.position, "a kernel is NAME or NAME:VARIANT", "see attnbench list kernels");
    }
    if (choice.name == "cublas" || choice.name == "onednn") choice.name = "blas";
    if (std::find(choices.begin(), choices.end(), choice) == choices.end()) choices.push_back(std::move(choice));
  }
  return choices;
}

Words<std::vector<std::string>> parse_zip(std::string_view text) {
  const auto groups = split_items(text, ';');
  if (!groups) return tl::unexpected(groups.error());
  std::vector<std::vector<std::string>> result;
  std::vector<std::string> used;
  for (const Item& group : *groups) {
    const auto items = split_items(group.text);
    if (!items) return tl::unexpected(shifted(items.error(), group.position));
    std::vector<std::string> names;
    for (const Item& item : *items) {
      const Item placed{item.text, item.position + group.position};
      std::string name = axis_spelling(item.text);
      if (std::find(kAxisNames.begin(), kAxisNames.end(), name) == kAxisNames.end()) return unknown(placed, kAxisNames);
      if (std::find(used.begin(), used.end(), name) != used.end()) {
        return fail(placed.position, fmt::format("{} is zipped twice", name), "name every axis once");
      }
      used.push_back(name);
      names.push_back(std::move(name));
    }
    if (names.size() < 2) return fail(group.position, "a zip pairs two axes or more", "e.g. d_model,heads");
    result.push_back(std::move(names));
  }
  return result;
}

Words<ExcludeRule> parse_exclude(std::string_view text) {
  const auto rules = split_items(text, ';');
  if (!rules) return tl::unexpected(rules.error());
  std::vector<ExcludeRule> result;
  for (const Item& rule : *rules) {
    const auto items = split_items(rule.text);
    if (!items) return tl::unexpected(shifted(items.error(), rule.position));
    ExcludeRule parsed;
    for (const Item& item : *items) {
      auto term = parse_term({item.text, item.position + rule.position});
      if (!term) return tl::unexpected(term.error());
      parsed.terms.push_back(std::move(*term));
    }
    result.push_back(std::move(parsed));
  }
  return result;
}

std::span<const std::string_view> axis_names() { return kAxisNames; }

}  // namespace attnbench::cli
