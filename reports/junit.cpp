// Writes test cases as XML.
#include "reports/junit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attnbench::reports::junit {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the UTF-8 character at `at`; 0: there is none, or one that XML 1.0 does not take.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 || byte(0) == '\t' || byte(0) == '\n' || byte(0) == '\r' ? 1 : 0;
  const std::size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || at + length > text.size()) return 0;
  std::uint32_t code = byte(0) & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kLeast[length] || code > 0x10FFFF || surrogate || code == 0xFFFE || code == 0xFFFF ? 0 : length;
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    const std::string_view letter = text.substr(at, std::max<std::size_t>(length, 1));
    at += letter.size();
    if (length == 0) {
      safe += kReplacement;
    } else if (letter == "&") {
      safe += "&amp;";
    } else if (letter == "<") {
      safe += "&lt;";
    } else if (letter == ">") {
      safe += "&gt;";
    } else if (letter == "\"") {
      safe += "&quot;";
    } else if (letter == "\n" || letter == "\r" || letter == "\t") {
      safe += fmt::format("&#{};", static_cast<int>(letter.front()));  // an attribute would take them for blanks
    } else {
      safe += letter;
    }
  }
  return safe;
}

/// xs:decimal knows no exponent.
std::string decimal(double seconds) { return fmt::format("{:.9f}", std::isfinite(seconds) ? seconds : 0.0); }

const char* element_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kFailure:
      return "failure";
    case Outcome::kError:
      return "error";
    default:
      return "skipped";
  }
}

}  // namespace

std::string document(std::string_view suite, const std::vector<TestCase>& cases) {
  std::string body;
  double seconds = 0;
  for (const TestCase& test : cases) {
    seconds += test.seconds.value_or(0);
    body += fmt::format("    <testcase classname=\"{}\" name=\"{}\"", escaped(test.class_name), escaped(test.name));
    if (test.seconds) body += fmt::format(" time=\"{}\"", decimal(*test.seconds));
    if (test.outcome == Outcome::kPassed) {
      body += "/>\n";
      continue;
    }
    const std::string message = fmt::format("message=\"{}\"", escaped(test.message));
    const std::string type = test.outcome == Outcome::kSkipped ? "" : fmt::format(" type=\"{}\"", escaped(test.type));
    body += fmt::format(">\n      <{} {}{}/>\n    </testcase>\n", element_of(test.outcome), message, type);
  }
  const auto count = [&cases](Outcome outcome) {
    return std::count_if(cases.begin(), cases.end(), [outcome](const TestCase& t) { return t.outcome == outcome; });
  };
  const std::string counts = fmt::format(
      "name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\"", escaped(suite), cases.size(),
      count(Outcome::kFailure), count(Outcome::kError), count(Outcome::kSkipped), decimal(seconds));
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {0}>\n  <testsuite {0}>\n{1}  </testsuite>\n"
      "</testsuites>\n",
      counts, body);
}

}  // namespace attnbench::reports::junit
