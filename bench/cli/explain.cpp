// attnbench explain COLUMN: what a number is, in which unit, by which convention.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "bench/base/suggest.hpp"
#include "bench/cli/verbs.hpp"
#include "reports/columns.hpp"

namespace attnbench::cli {

int explain_verb(const ExplainOptions& options) {
  const reports::Column* column = reports::find_column(options.column);
  if (column == nullptr) {
    std::vector<std::string_view> known;
    for (const reports::Column& each : reports::columns()) known.push_back(each.name);
    const std::string_view match = base::nearest(options.column, known);
    const std::string hint = match.empty() ? "see attnbench list columns" : fmt::format("did you mean \"{}\"?", match);
    std::fprintf(stderr, "error: no column \"%s\"; %s\n", options.column.c_str(), hint.c_str());
    return base::exit_code::kUsage;
  }
  std::string text(column->name);
  if (!column->unit.empty()) text += fmt::format(" ({})", column->unit);
  text += fmt::format("\n  {}\n", column->doc);
  if (!column->detail.empty()) text += fmt::format("  {}\n", column->detail);
  std::fputs(text.c_str(), stdout);
  return base::exit_code::kOk;
}

}  // namespace attnbench::cli
