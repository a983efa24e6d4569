// From words to candidates, through the catalog.
#include "bench/cli/devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "bench/base/suggest.hpp"
#include "kernels/catalog.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using plan::Candidate;

/// `cuda:1` is {cuda, 1}; `cuda` {cuda, nothing}; `cuda:all` {cuda, all}.
struct DeviceWord {
  std::string_view backend;
  std::optional<int> ordinal;
  bool all = false;
};

Result<DeviceWord> parse_word(const std::string& word) {
  static constexpr std::array<std::string_view, 4> kKnown{"auto", "cpu", "cuda", "mock"};
  const std::size_t colon = word.find(':');
  DeviceWord parsed{std::string_view(word).substr(0, colon), std::nullopt, false};
  if (std::find(kKnown.begin(), kKnown.end(), parsed.backend) == kKnown.end()) {
    return fail(ErrorKind::kUsage,
                fmt::format("--device: \"{}\" is not a device{}", word, base::did_you_mean(parsed.backend, kKnown)));
  }
  if (colon == std::string::npos) return parsed;
  const std::string_view number = std::string_view(word).substr(colon + 1);
  int ordinal = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), ordinal);
  if (number == "all") {
    parsed.all = true;
  } else if (error == std::errc{} && stop == number.data() + number.size() && ordinal >= 0) {
    parsed.ordinal = ordinal;
  } else {
    return fail(ErrorKind::kUsage, fmt::format("--device: \"{}\" is not a device; try {}:0 or {}:all", word,
                                               parsed.backend, parsed.backend));
  }
  return parsed;
}

Result<void> add(std::vector<Candidate>& candidates, const std::string& word, const DeviceWord& parsed) {
  const auto backend = kernels::find_backend(parsed.backend);
  if (!backend) return tl::unexpected(backend.error());
  const auto devices = (*backend)->devices();
  if (!devices) return tl::unexpected(devices.error());
  const int wanted = parsed.ordinal.value_or(0);
  bool found = false;
  for (const kernels::DeviceFacts& facts : *devices) {
    if (!parsed.all && facts.ordinal != wanted) continue;
    found = true;
    const auto same = [&](const Candidate& other) { return other.facts.id == facts.id; };
    if (std::none_of(candidates.begin(), candidates.end(), same)) candidates.push_back({facts, (*backend)->kernels()});
  }
  if (found) return {};
  return fail(ErrorKind::kAbsent,
              fmt::format("--device {}: there are {} {} devices, numbered from 0; see attnbench list "
                          "devices",
                          word, devices->size(), parsed.backend));
}

}  // namespace

Result<std::vector<Candidate>> find_candidates(std::span<const std::string> devices) {
  std::vector<Candidate> candidates;
  for (const std::string& word : devices) {
    const auto parsed = parse_word(word);
    if (!parsed) return tl::unexpected(parsed.error());
    if (parsed->backend != "auto") {
      if (auto ok = add(candidates, word, *parsed); !ok) return tl::unexpected(ok.error());
      continue;
    }
    // The one place where absence of a GPU is no error: auto asks for the best there is.
    if (add(candidates, word, {"cuda", std::nullopt, false})) continue;
    if (auto ok = add(candidates, word, {"cpu", std::nullopt, false}); !ok) return tl::unexpected(ok.error());
  }
  return candidates;
}

}  // namespace attnbench::cli
