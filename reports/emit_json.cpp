// One JSON document: strict JSON, every column in every row, null where a value is missing.
#include <fmt/format.h>

#include "reports/columns.hpp"
#include "reports/emit.hpp"
#include "reports/provenance.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::reports {

std::string emit_json(const Document& document, const EmitOptions& options) {
  std::string json = fmt::format("{{\n\"schema_version\": {},\n\"context\": {{", kSchemaVersion);
  fmt::format_to(std::back_inserter(json), "\n  \"baseline\": {},\n  \"row_count\": {},", json_quote(options.baseline),
                 document.rows.size());
  json += "\n  \"provenance\": {";
  const char* separator = "";
  for (const ProvenanceEntry& entry : provenance(document)) {
    fmt::format_to(std::back_inserter(json), "{}\n    {}: [", separator, json_quote(entry.column->name));
    separator = "";
    for (const std::string& value : entry.values) {
      json.append(separator).append(json_quote(value));
      separator = ", ";
    }
    json += ']';
    separator = ",";
  }
  json += "\n  },\n  \"units\": {";
  separator = "";
  for (const Column& column : columns()) {
    if (column.unit.empty()) continue;
    fmt::format_to(std::back_inserter(json), "{}\n    {}: {}", separator, json_quote(column.name),
                   json_quote(column.unit));
    separator = ",";
  }
  json += "\n  }\n},\n\"rows\": [";
  separator = "";
  for (const Row& row : document.rows) {
    json.append(separator).append("\n").append(to_json_object(row));
    separator = ",";
  }
  return json += "\n]\n}\n";
}

}  // namespace attnbench::reports
