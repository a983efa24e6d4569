// What a comparison looks like: on the terminal, in Markdown (a step summary, a comment), as JSON.
#pragma once

#include <array>
#include <string>
#include <string_view>

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

/// JUnit: a row that regressed, or broke, is a failure; inconclusive, added and removed rows are errors under strict
/// and skipped without; a row that failed before is skipped. A run that must not be compared is one failure more.
std::string compare_junit(const Comparison& comparison, bool strict);

/// GitHub's ::error and ::warning lines: what closes the gate, and what is in doubt.
std::string compare_annotations(const Comparison& comparison, bool strict);

/// `driver differs: 570.1 before, unknown now`.
std::string difference_sentence(const Difference& difference);

/// The comparison in the named format: those of kCompareFormats. Error: kUsage, another one
base::Result<std::string> emit_comparison(std::string_view format, const Comparison& comparison, bool strict);
inline constexpr std::array<std::string_view, 6> kCompareFormats{"csv",   "json",         "md",
                                                                 "junit", "step-summary", "annotations"};

/// `2 regressed, 1 improved, 15 same`.
std::string counts_sentence(const Comparison& comparison);

}  // namespace attnbench::reports
