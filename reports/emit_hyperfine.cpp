// hyperfine's --export-json, in seconds. Its readers want user and system times, which nobody took here: they are 0.
#include <fmt/format.h>

#include "bench/base/stats.hpp"
#include "reports/columns.hpp"
#include "reports/emit.hpp"
#include "reports/named_rows.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::reports {
namespace {

constexpr double kSecondsPerUs = 1e-6;

std::string seconds(double us) { return number_text(us * kSecondsPerUs); }

std::string result(const NamedRow& named) {
  const Row& row = *named.row;
  const base::Summary summary = base::summarize(row.sample_times_us);
  std::string json = fmt::format(
      "    {{\n      \"command\": {},\n      \"mean\": {},\n      \"stddev\": {},\n      \"median\": {},\n"
      "      \"user\": 0,\n      \"system\": 0,\n      \"min\": {},\n      \"max\": {},\n      \"times\": [",
      json_quote(named.name), seconds(*summary.mean), summary.stdev ? seconds(*summary.stdev) : "null",
      seconds(*summary.median), seconds(*summary.min), seconds(*summary.max));
  std::string codes;
  for (const double time : row.sample_times_us) {
    json.append(codes.empty() ? "" : ", ").append(seconds(time));
    codes.append(codes.empty() ? "" : ", ").append("0");
  }
  json += fmt::format("],\n      \"exit_codes\": [{}],\n      \"parameters\": {{", codes);
  const char* separator = "";
  for (const char* axis : {"kernel", "variant", "pass", "dtype", "causal", "batch", "heads", "kv_heads", "head_dim",
                           "seq_len", "seq_len_k", "window", "cache", "threads", "device"}) {
    const std::string text = plain_text(row, *find_column(axis));
    if (text.empty()) continue;
    json += fmt::format("{}{}: {}", separator, json_quote(axis), json_quote(text));
    separator = ", ";
  }
  return json + "}\n    }";
}

}  // namespace

std::string emit_hyperfine(const Document& document, const EmitOptions&) {
  std::string json = "{\n  \"results\": [";
  const char* separator = "\n";
  for (const NamedRow& named : sampled_rows(document)) {
    json += separator + result(named);
    separator = ",\n";
  }
  return json + "\n  ]\n}\n";
}

}  // namespace attnbench::reports
