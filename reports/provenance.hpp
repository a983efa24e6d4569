// What a document says of where its rows came from.
#pragma once

#include <string>
#include <vector>

#include "reports/columns.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

/// A provenance column and the different values that the rows have, in order of appearance.
struct ProvenanceEntry {
  const Column* column = nullptr;
  std::vector<std::string> values;
};

/// Columns with at least one value, in a fixed order: command, machine, libraries, build.
std::vector<ProvenanceEntry> provenance(const Document& document);

}  // namespace attnbench::reports
