// Any bytes as rows: refused with a message, or read; and what was read is written and read back to equal rows.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bench/base/error.hpp"
#include "reports/rows_io.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attnbench;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto document = reports::parse_rows(bytes, "fuzz");
  if (!document) {
    ATTNBENCH_ENSURE(document.error().kind == base::ErrorKind::kUnreadable, "unreadable input is exit code 5");
    ATTNBENCH_ENSURE(!document.error().message.empty(), "a refusal says why");
    return 0;
  }
  ATTNBENCH_ENSURE(!document->rows.empty(), "a document without rows is refused");
  for (const reports::Row& row : document->rows) {
    const auto back = reports::from_json_line(reports::to_json_line(row));
    ATTNBENCH_ENSURE(back.has_value(), "a row that was read can be written and read");
    ATTNBENCH_ENSURE(*back == row, "and is the same then");
  }
  return 0;
}
