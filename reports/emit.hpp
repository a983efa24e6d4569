// Rows in, bytes out: one emitter per format, chosen by name.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "bench/base/error.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

struct EmitOptions {
  std::string baseline = "naive";  // kernel that speed-ups are relative to
};

/// Rows that a format cannot do without, since what reads it refuses an empty list.
enum class Needs : std::uint8_t { kNothing, kTimes, kSamples };

/// One format: its name and the function that writes it.
struct Emitter {
  std::string_view name;
  std::string (*write)(const Document& document, const EmitOptions& options);
  Needs needs = Needs::kNothing;
};

/// Names of emitters(), for those who only need to know the words.
inline constexpr std::array<std::string_view, 14> kFormats{
    "csv",        "json",  "md",           "gbench",  "googlecpp", "bmf",      "gha-smaller",
    "gha-bigger", "junit", "step-summary", "nvbench", "hyperfine", "codspeed", "annotations"};

/// What is added to a file that is there already, since others write to it too.
constexpr bool appends(std::string_view format) { return format == "step-summary"; }

std::span<const Emitter> emitters();

/// The document in the named format. Errors  kUsage: a format that is not there. kFailed: no row has a time, or its
/// samples, and the format is of no use without
base::Result<std::string> emit(std::string_view format, const Document& document, const EmitOptions& options);

/// Whether write_output could write there now, without trying: so that a run of hours does not end in a wrong path.
///
/// Errors  kFailed with the path and the system's reason
base::Result<void> can_write_output(const std::string& path_or_dash);

/// Writes all bytes or leaves the file as it was (temporary file in the same directory, then renamed). "-" is standard
/// output; what is no regular file (a pipe, /dev/null) is written in place.
///
/// Errors  kFailed with the path and the system's reason
base::Result<void> write_output(const std::string& path_or_dash, std::string_view bytes);

/// As write_output, but behind what is in the file already.
base::Result<void> append_output(const std::string& path_or_dash, std::string_view bytes);

/// To the end of the file for a format that appends, else in its place.
base::Result<void> write_format(std::string_view format, const std::string& path_or_dash, std::string_view bytes);

/// RFC 4180: a header, then one record per row, all columns, missing values empty, lines end in CR LF.
std::string emit_csv(const Document& document, const EmitOptions& options);
/// One object {schema_version, context, rows}; missing values null; one row per line.
std::string emit_json(const Document& document, const EmitOptions& options);
/// Speed-ups over the baseline, the full table, and where it all came from.
std::string emit_md(const Document& document, const EmitOptions& options);
/// Google Benchmark JSON of the rows that are ok.
std::string emit_gbench(const Document& document, const EmitOptions& options);
/// Bencher's own JSON: {name: {latency: ns, throughput: FLOP/s, peak-memory: bytes}}, with the interval as bounds.
std::string emit_bmf(const Document& document, const EmitOptions& options);
/// Arrays of github-action-benchmark, one for each direction: times and bytes; TFLOP/s and GB/s.
std::string emit_gha_smaller(const Document& document, const EmitOptions& options);
std::string emit_gha_bigger(const Document& document, const EmitOptions& options);
/// One test case a row: incorrect and failed are failures, timeout and device_lost errors, the other statuses skipped.
std::string emit_junit(const Document& document, const EmitOptions& options);
/// Markdown for $GITHUB_STEP_SUMMARY: what went wrong first, then the slowest rows, 200 in all.
std::string emit_step_summary(const Document& document, const EmitOptions& options);
/// nvbench's JSON; rows that are not ok are skipped states.
std::string emit_nvbench(const Document& document, const EmitOptions& options);
/// hyperfine's --export-json, in seconds; rows with samples.
std::string emit_hyperfine(const Document& document, const EmitOptions& options);
/// CodSpeed's walltime results, in ns; rows with samples.
std::string emit_codspeed(const Document& document, const EmitOptions& options);
/// An ::error line of GitHub's for each row that is incorrect or failed.
std::string emit_annotations(const Document& document, const EmitOptions& options);

}  // namespace attnbench::reports
