// What a comparison looks like: on the terminal, in Markdown (a step summary, a comment), as JSON.
#pragma once

#include <string>

#include "reports/compare.hpp"
#include "reports/table.hpp"

namespace attnbench::reports {

/// Differences of the set-up first, then one line per change, the worst first, then the counts.
std::string compare_table(const Comparison& comparison, const TableStyle& style);

/// GitHub-flavoured: one sentence with the counts, the changes as a table, what is the same folded away. At most
/// `most_rows` rows of the table (a step summary takes 1 MiB).
std::string compare_markdown(const Comparison& comparison, std::size_t most_rows = 200);

/// One object {schema_version, base_commit, new_commit, differences, counts, changes}; missing values null.
std::string compare_json(const Comparison& comparison);

/// RFC 4180: a header and one record per change.
std::string compare_csv(const Comparison& comparison);

/// `2 regressed, 1 improved, 15 same`.
std::string counts_sentence(const Comparison& comparison);

}  // namespace attnbench::reports
