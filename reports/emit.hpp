// Rows in, bytes out: one emitter per format, chosen by name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bench/base/error.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

struct EmitOptions {
  std::string baseline = "naive";  // kernel that speed-ups are relative to
};

/// One format: its name and the function that writes it.
struct Emitter {
  std::string_view name;
  std::string (*write)(const Document& document, const EmitOptions& options);
};

/// csv, json, md, gbench.
std::span<const Emitter> emitters();

/// The document in the named format. Error: kUsage, a format that is not there.
base::Result<std::string> emit(std::string_view format, const Document& document, const EmitOptions& options);

/// Whether write_output could write there now, without trying: so that a run of hours does not end in a wrong path.
///
/// Errors  kFailed with the path and the system's reason
base::Result<void> can_write_output(const std::string& path_or_dash);

/// Writes all bytes or leaves the file as it was (temporary file in the same directory, then renamed). "-" is standard
/// output; what is no regular file (a pipe, /dev/null) is written in place.
///
/// Errors  kFailed with the path and the system's reason
base::Result<void> write_output(const std::string& path_or_dash, std::string_view bytes);

/// RFC 4180: a header, then one record per row, all columns, missing values empty, lines end in CR LF.
std::string emit_csv(const Document& document, const EmitOptions& options);
/// One object {schema_version, context, rows}; missing values null; one row per line.
std::string emit_json(const Document& document, const EmitOptions& options);
/// Speed-ups over the baseline, the full table, and where it all came from.
std::string emit_md(const Document& document, const EmitOptions& options);
/// Google Benchmark JSON of the rows that are ok.
std::string emit_gbench(const Document& document, const EmitOptions& options);

}  // namespace attnbench::reports
