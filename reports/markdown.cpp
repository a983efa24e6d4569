// Escapes and table lines.
#include "reports/markdown.hpp"

#include "reports/format.hpp"

namespace attnbench::reports::markdown {

std::string cell(std::string_view text) {
  std::string safe;
  for (const char letter : one_line(text)) {
    switch (letter) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '|':
      case '\\':
      case '`':
      case '*':
      case '_':
      case '[':
      case ']':
        safe.append(1, '\\').append(1, letter);
        break;
      default:
        safe += letter;
    }
  }
  return safe.empty() ? kAbsent : safe;
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& text : cells) line += " " + text + " |";
  return line + "\n";
}

std::string head(const std::vector<std::string>& titles, const std::vector<bool>& numeric) {
  std::string rule = "|";
  for (const bool is_number : numeric) rule += is_number ? "---:|" : "---|";
  return line_of(titles) + rule + "\n";
}

}  // namespace attnbench::reports::markdown
