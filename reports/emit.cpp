// The table of formats.
#include "reports/emit.hpp"

#include <fmt/format.h>

#include <array>

#include "reports/named_rows.hpp"

namespace attnbench::reports {

namespace {

constexpr std::array kEmitters = {
    Emitter{"csv", &emit_csv},
    Emitter{"json", &emit_json},
    Emitter{"md", &emit_md},
    Emitter{"gbench", &emit_gbench},
    Emitter{"googlecpp", &emit_gbench, Needs::kTimes},
    Emitter{"bmf", &emit_bmf, Needs::kTimes},
    Emitter{"gha-smaller", &emit_gha_smaller, Needs::kTimes},
    Emitter{"gha-bigger", &emit_gha_bigger, Needs::kTimes},
    Emitter{"junit", &emit_junit},
    Emitter{"step-summary", &emit_step_summary},
    Emitter{"nvbench", &emit_nvbench},
    Emitter{"hyperfine", &emit_hyperfine, Needs::kSamples},
    Emitter{"codspeed", &emit_codspeed, Needs::kSamples},
    Emitter{"annotations", &emit_annotations},
};

static_assert(kEmitters.size() == kFormats.size());

/// Why the format is of no use for these rows; empty where it is.
std::string missing(const Emitter& emitter, const Document& document) {
  const bool samples = emitter.needs == Needs::kSamples;
  if (emitter.needs == Needs::kNothing) return {};
  if (!(samples ? sampled_rows(document) : timed_rows(document)).empty()) return {};
  return fmt::format("{}: no row has {}, and what reads {} refuses an empty list; nothing was written", emitter.name,
                     samples ? "samples (--json leaves them out; give the folder of the run)" : "a time", emitter.name);
}

}  // namespace

std::span<const Emitter> emitters() { return kEmitters; }

base::Result<std::string> emit(std::string_view format, const Document& document, const EmitOptions& options) {
  std::string names;
  for (const Emitter& emitter : kEmitters) {
    if (emitter.name == format) {
      const std::string why = missing(emitter, document);
      if (!why.empty()) return base::fail(base::ErrorKind::kFailed, why);
      return emitter.write(document, options);
    }
    names.append(names.empty() ? "" : ", ").append(emitter.name);
  }
  return base::fail(base::ErrorKind::kUsage,
                    fmt::format("there is no report format \"{}\"; give one of {}", format, names));
}

}  // namespace attnbench::reports
