// The grammar of --gate.
#include <fmt/format.h>

#include <vector>

#include "bench/base/suggest.hpp"
#include "bench/base/units.hpp"
#include "reports/compare.hpp"

namespace attnbench::reports {
namespace {

using base::ErrorKind;
using base::fail;

bool is_number(const Column& column) { return !std::holds_alternative<Text Row::*>(column.field); }

std::string unknown_metric(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Column& column : columns()) {
    if (is_number(column)) known.push_back(column.name);
  }
  const std::string_view match = base::nearest(name, known);
  return fmt::format("no metric \"{}\"{}", name,
                     match.empty() ? "; see attnbench list columns" : fmt::format("; did you mean {}?", match));
}

}  // namespace

base::Result<Gate> parse_gate(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const Column* metric = find_column(name);
  if (metric == nullptr) return fail(ErrorKind::kUsage, unknown_metric(name));
  if (!is_number(*metric)) {
    return fail(ErrorKind::kUsage,
                fmt::format("{} holds words, not numbers; try {}", name, "time_us_median, peak_bytes or tflops"));
  }
  const std::string_view rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  const bool signed_percent = rest.size() >= 3 && (rest.front() == '+' || rest.front() == '-') && rest.back() == '%';
  const std::optional<double> limit =
      signed_percent ? base::parse_number(std::string(rest.substr(1, rest.size() - 2))) : std::nullopt;
  if (!limit || *limit < 0) {
    return fail(ErrorKind::kUsage,
                fmt::format("after the metric comes a sign and a percentage; try {0}:+5% where more is worse, "
                            "{0}:-5% where less is",
                            name));
  }
  return Gate{metric, *limit, rest.front() == '+'};
}

}  // namespace attnbench::reports
