#include <gtest/gtest.h>

#include <sstream>

#include "reports/columns.hpp"
#include "sample_rows.hpp"

namespace attnbench::reports {
namespace {

// reports/README.md lists every column in the order of columns(), with its unit and its sentence.
TEST(Readme, ListsEveryColumnInOrderWithItsUnitAndSentence) {
  std::string expected;
  for (const Column& column : columns()) {
    expected +=
        "| `" + std::string(column.name) + "` | " + std::string(column.unit) + " | " + std::string(column.doc) + " |\n";
  }
  std::string found;
  std::istringstream lines(file_bytes(std::string(ATTNBENCH_SOURCE_DIR) + "/reports/README.md"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.find("` |");
    if (line.starts_with("| `") && end != std::string::npos && find_column(line.substr(3, end - 3)) != nullptr) {
      found += line + "\n";
    }
  }
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace attnbench::reports
