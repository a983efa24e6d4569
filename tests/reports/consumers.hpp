// What the tools that read our files do with them, written from their contracts: each reader takes the bytes of a file
// and gives what the tool would take from it, or throws with what it would refuse.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace attnbench::tests {

/// A number that a tool follows from run to run.
struct Followed {
  double value = 0;
  std::string unit;
  std::optional<double> range;         // half width (github-action-benchmark)
  std::optional<double> lower, upper;  // bounds (Bencher)
};

/// github-action-benchmark, tool googlecpp: strict JSON, at least one entry, first of equal names. By name.
std::map<std::string, Followed> read_googlecpp(const std::string& bytes);

/// Bencher's cpp_google and Conbench's adapter on the same file: one bad entry rejects it. Times in ns by name.
std::map<std::string, double> read_google_strictly(const std::string& bytes);

/// github-action-benchmark, customSmallerIsBetter and customBiggerIsBetter.
std::map<std::string, Followed> read_custom(const std::string& bytes);

/// Bencher Metric Format: by "name measure".
std::map<std::string, Followed> read_bmf(const std::string& bytes);

struct JunitCase {
  std::string class_name, name, outcome, message;  // outcome: passed, failure, error, skipped
  std::optional<double> seconds;
};

/// JUnit: well-formed XML 1.0, counts that agree with the cases, decimal times.
std::vector<JunitCase> read_junit(const std::string& bytes);

/// hyperfine's JSON (Bencher's shell_hyperfine): medians in seconds by command.
std::map<std::string, double> read_hyperfine(const std::string& bytes);

/// CodSpeed's walltime results: medians in ns by uri.
std::map<std::string, double> read_codspeed(const std::string& bytes);

/// nvbench_compare: median seconds by "benchmark state", of states that are not skipped.
std::map<std::string, double> read_nvbench(const std::string& bytes);

struct AnnotationLine {
  std::string level, title, message;
};

/// GitHub's workflow commands, of which ten of a level are shown.
std::vector<AnnotationLine> read_annotations(const std::string& bytes);

/// GitHub's step summary: at most 1 MiB of valid UTF-8; lines of tables with as many cells as their head. Number of
/// lines of tables.
std::size_t read_step_summary(const std::string& bytes);

}  // namespace attnbench::tests
