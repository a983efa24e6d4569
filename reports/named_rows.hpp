// Rows under the names that tools which follow a number from run to run know them by.
#pragma once

#include <string>
#include <vector>

#include "reports/row.hpp"

namespace attnbench::reports {

/// A row and its name: the key, or, of rows that something else wrote, the identity. Equal from run to run, and unique:
/// tools take the first of equal names.
struct NamedRow {
  const Row* row = nullptr;
  std::string name;
};

/// The row is ok and has a time.
bool is_timed(const Row& row);

std::vector<NamedRow> named_rows(const Document& document);

/// Those with a time. A tool that follows numbers would take a row without one for a time of 0.
std::vector<NamedRow> timed_rows(const Document& document);

/// Those with a time and samples whose sum and spread a double can hold.
std::vector<NamedRow> sampled_rows(const Document& document);

}  // namespace attnbench::reports
