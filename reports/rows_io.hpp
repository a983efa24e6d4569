// Rows to JSON lines and back. The only place that knows how a row is stored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/base/error.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

/// The version that this program writes, and the highest it reads.
inline constexpr std::int64_t kSchemaVersion = 1;

/// Name of the file of rows in a run directory.
inline constexpr const char* kRowsFile = "rows.jsonl";

/// One JSON object on one line, without the newline; absent columns are left out, the samples are in.
/// Text that is not UTF-8 gets U+FFFD in place of each bad byte.
std::string to_json_line(const Row& row);

/// One JSON object on one line with every column, null where absent; without the samples.
std::string to_json_object(const Row& row);

/// The text as a JSON string, quotes included.
std::string json_quote(std::string_view text);

/// Reads what to_json_line or to_json_object wrote. Unknown keys are passed over.
///
/// Errors  kUnreadable: not JSON, not a row, a value of the wrong type (column named), a higher schema version
base::Result<Row> from_json_line(std::string_view line);

/// What a killed run leaves behind the last newline: the beginning of a row that ends too early, or zeros, which a file
/// system leaves that lost power. A line that has its newline is never torn: it is whole, or it is damaged.
bool is_torn(std::string_view unfinished_line);

/// Rows of a run directory, of its rows.jsonl, or of a document that --json wrote; of equal keys the latest, in the
/// place of the first. A torn line after whole rows is dropped with a warning; keys of the same schema version that are
/// not known give a warning.
///
/// Errors  kUnreadable: cannot be read, no whole row, any other damage (with the line), a higher schema version
base::Result<Document> load_rows(const std::string& dir_or_file);

/// As load_rows, from bytes in memory; `source` is what messages call them.
base::Result<Document> parse_rows(std::string_view bytes, const std::string& source);

}  // namespace attnbench::reports
