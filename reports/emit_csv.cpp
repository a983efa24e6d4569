// Comma-separated values after RFC 4180.
#include "reports/columns.hpp"
#include "reports/emit.hpp"

namespace attnbench::reports {

namespace {

/// Quoted where RFC 4180 asks for it: a comma, a quote or a line break inside; quotes doubled.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted.append(letter == '"' ? "\"\"" : std::string(1, letter));
  return quoted += '"';
}

}  // namespace

std::string emit_csv(const Document& document, const EmitOptions&) {
  std::string csv;
  for (const Column& column : columns()) csv.append(csv.empty() ? "" : ",").append(column.name);
  csv += "\r\n";
  for (const Row& row : document.rows) {
    const char* separator = "";
    for (const Column& column : columns()) {
      csv.append(separator).append(field(plain_text(row, column)));
      separator = ",";
    }
    csv += "\r\n";
  }
  return csv;
}

}  // namespace attnbench::reports
