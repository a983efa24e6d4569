// The table of formats.
#include "reports/emit.hpp"

#include <fmt/format.h>

#include <array>

namespace attnbench::reports {

namespace {

constexpr std::array kEmitters = {
    Emitter{"csv", &emit_csv},
    Emitter{"json", &emit_json},
    Emitter{"md", &emit_md},
    Emitter{"gbench", &emit_gbench},
};

}  // namespace

std::span<const Emitter> emitters() { return kEmitters; }

base::Result<std::string> emit(std::string_view format, const Document& document, const EmitOptions& options) {
  std::string names;
  for (const Emitter& emitter : kEmitters) {
    if (emitter.name == format) return emitter.write(document, options);
    names.append(names.empty() ? "" : ", ").append(emitter.name);
  }
  return base::fail(base::ErrorKind::kUsage,
                    fmt::format("there is no report format \"{}\"; give one of {}", format, names));
}

}  // namespace attnbench::reports
