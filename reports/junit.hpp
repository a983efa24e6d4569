// JUnit's XML, as GitLab, Jenkins and dorny/test-reporter read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnbench::reports::junit {

enum class Outcome : std::uint8_t { kPassed, kFailure, kError, kSkipped };

struct TestCase {
  std::string class_name, name;
  std::optional<double> seconds;
  Outcome outcome = Outcome::kPassed;
  std::string type;     // one word on what is wrong
  std::string message;  // a sentence
};

/// One <testsuites> with one <testsuite>; counts and the sum of the times are those of the cases. Text is escaped, and
/// what XML 1.0 cannot hold (control characters, bytes that are not UTF-8) becomes U+FFFD.
std::string document(std::string_view suite, const std::vector<TestCase>& cases);

}  // namespace attnbench::reports::junit
