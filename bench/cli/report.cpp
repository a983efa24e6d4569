// `attnbench report`: reads the rows of an earlier run and prints them again, in any format. Needs no device.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/base/suggest.hpp"
#include "bench/cli/print.hpp"
#include "bench/cli/sweep_output.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/cli/writers.hpp"
#include "reports/emit.hpp"
#include "reports/rows_io.hpp"
#include "reports/speedup.hpp"
#include "reports/table.hpp"

namespace attnbench::cli {

namespace {

int complain(const base::Error& error) {
  print_to(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

/// A baseline that was asked for has rows; without naive the summary says so, as it does after a sweep.
base::Result<void> check_baseline(const reports::Document& document, const std::string& baseline) {
  if (baseline == kBaseline) return {};
  std::vector<std::string> words;
  for (const reports::Row& row : document.rows) {
    if (reports::is_baseline(row, baseline)) return {};
    for (const std::string& word : {row.kernel, row.kernel + ":" + row.variant}) {
      if (std::find(words.begin(), words.end(), word) == words.end() && !word.ends_with(':')) words.push_back(word);
    }
  }
  const std::vector<std::string_view> known(words.begin(), words.end());
  return base::fail(base::ErrorKind::kUsage, fmt::format("--baseline: {} has no rows of \"{}\"{}", document.source,
                                                         baseline, base::did_you_mean(baseline, known)));
}

}  // namespace

int report_verb(const ReportOptions& options) {
  if (auto ok = check_writers(options.outputs, options.input); !ok) return complain(ok.error());
  const auto document = reports::load_rows(options.input);
  if (!document) return complain(document.error());
  for (const std::string& warning : document->warnings) print_to(stderr, "warning: {}\n", warning);

  if (auto ok = check_baseline(*document, options.baseline); !ok) return complain(ok.error());
  const reports::EmitOptions emit_options{options.baseline};
  if (auto ok = write_reports(options.outputs, *document, options.baseline); !ok) return complain(ok.error());
  if (options.outputs.any() || options.outputs.quiet) return base::exit_code::kOk;

  reports::TableFit fit;
  for (const reports::Row& row : document->rows) fit.add(row);
  const reports::TableStyle style =
      fit.applied_to({use_color(options.outputs.color, STDOUT_FILENO), terminal_width(STDOUT_FILENO)});
  const bool training = !document->rows.empty() && kind_of(document->rows.front()) == reports::RowKind::kTraining;
  std::string table = reports::table_header(style, training ? reports::RowKind::kTraining : reports::RowKind::kKernel);
  for (const reports::Row& row : document->rows) table += reports::table_row(row, style);
  const auto written = reports::write_output("-", table + reports::table_summary(*document, emit_options, style));
  return written ? base::exit_code::kOk : complain(written.error());
}

}  // namespace attnbench::cli
