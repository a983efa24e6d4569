// Pieces of GitHub-flavoured Markdown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnbench::reports::markdown {

/// What stands in a cell without a value.
inline constexpr const char* kAbsent = "n/a";

/// Text that stays inside its table cell and means itself: no pipe, no line break, no markup; kAbsent when empty.
std::string cell(std::string_view text);

/// One line of a table.
std::string line_of(const std::vector<std::string>& cells);

/// Titles and the rule below them; numbers are aligned right.
std::string head(const std::vector<std::string>& titles, const std::vector<bool>& numeric);

}  // namespace attnbench::reports::markdown
