// What a document says of where its rows came from.
#include "reports/provenance.hpp"

#include <array>
#include <unordered_set>

#include "bench/base/error.hpp"

namespace attnbench::reports {

namespace {

constexpr std::array<std::string_view, 17> kNames = {
    "command", "run_id",          "host",       "os",      "device_name", "cores",    "isa",
    "driver",  "libraries",       "governor",   "version", "commit",      "compiler", "flags",
    "seed",    "fma_peak_gflops", "fingerprint"};

}  // namespace

std::vector<ProvenanceEntry> provenance(const Document& document) {
  std::vector<ProvenanceEntry> entries;
  for (const std::string_view name : kNames) {
    const Column* column = find_column(name);
    ATTNBENCH_ENSURE(column != nullptr, "a provenance column is not one of columns()");
    ProvenanceEntry entry{column, {}};
    std::unordered_set<std::string> seen;
    for (const Row& row : document.rows) {
      std::string value = plain_text(row, *column);
      if (value.empty()) continue;
      if (seen.insert(value).second) entry.values.push_back(std::move(value));
    }
    if (!entry.values.empty()) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace attnbench::reports
