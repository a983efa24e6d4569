// `attnbench report`: reads the rows of an earlier run and prints them again, in any format. Needs no device.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "bench/cli/terminal.hpp"
#include "bench/cli/verbs.hpp"
#include "reports/emit.hpp"
#include "reports/rows_io.hpp"
#include "reports/table.hpp"

namespace attnbench::cli {

namespace {

int complain(const base::Error& error) {
  fmt::print(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

struct Target {
  const char* format;
  const std::string* path;
};

}  // namespace

int report_verb(const ReportOptions& options) {
  const std::array targets = {Target{"csv", &options.outputs.csv}, Target{"json", &options.outputs.json},
                              Target{"md", &options.outputs.md}, Target{"gbench", &options.outputs.gbench_json}};
  int on_stdout = 0;
  for (const Target& target : targets) on_stdout += *target.path == "-" ? 1 : 0;
  if (on_stdout > 1) {
    return complain({base::ErrorKind::kUsage,
                     "only one of --csv, --json, --md, --gbench-json can have standard output "
                     "(-); give the others a file"});
  }
  const auto document = reports::load_rows(options.input);
  if (!document) return complain(document.error());
  for (const std::string& warning : document->warnings) fmt::print(stderr, "warning: {}\n", warning);

  const reports::EmitOptions emit_options{options.baseline};
  bool any = false;
  for (const Target& target : targets) {
    if (target.path->empty()) continue;
    any = true;
    const auto bytes = reports::emit(target.format, *document, emit_options);
    if (!bytes) return complain(bytes.error());
    const auto written = reports::write_output(*target.path, *bytes);
    if (!written) return complain(written.error());
  }
  if (any || options.outputs.quiet) return base::exit_code::kOk;

  const reports::TableStyle style{use_color(options.outputs.color, STDOUT_FILENO), terminal_width(STDOUT_FILENO)};
  const bool training = !document->rows.empty() && kind_of(document->rows.front()) == reports::RowKind::kTraining;
  std::string table = reports::table_header(style, training ? reports::RowKind::kTraining : reports::RowKind::kKernel);
  for (const reports::Row& row : document->rows) table += reports::table_row(row, style);
  const auto written = reports::write_output("-", table + reports::table_summary(*document, emit_options, style));
  return written ? base::exit_code::kOk : complain(written.error());
}

}  // namespace attnbench::cli
