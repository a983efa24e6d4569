// Google Benchmark JSON, for the tools that read it. Rows that are not ok are left out and counted in the context:
// readers take an errored entry for a time of 0.
#include <fmt/format.h>

#include <array>
#include <limits>
#include <set>
#include <unordered_set>

#include "reports/columns.hpp"
#include "reports/emit.hpp"
#include "reports/format.hpp"
#include "reports/named_rows.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::reports {

namespace {

/// Numbers beside the time. None is called bytes_per_second or items_per_second: some readers take these for the time.
constexpr std::array<std::string_view, 11> kCounters = {
    "tflops",      "gbps",       "intensity",      "fma_pct",         "peak_bytes", "err_abs_max",
    "err_rel_max", "spread_pct", "time_us_ci_low", "time_us_ci_high", "time_us_min"};

/// Words of the rows that are left out, with their counts.
std::string left_out_sentence(const Document& document) {
  Document left_out;
  for (const Row& row : document.rows) {
    if (!is_timed(row)) left_out.rows.push_back(row);
  }
  std::set<std::string> words;
  for (const Row& row : left_out.rows) words.insert(one_line(row.status));
  return fmt::format("{} of {} rows hold no time and are left out{}{}", left_out.rows.size(), document.rows.size(),
                     words.empty() ? "" : ": ", fmt::join(words, ", "));
}

/// The last row's text: when the run ended.
std::string last_text(const Document& document, Text Row::*field) {
  for (auto row = document.rows.rbegin(); row != document.rows.rend(); ++row) {
    if (!((*row).*field).empty()) return (*row).*field;
  }
  return {};
}

std::string context(const Document& document) {
  const Row last = document.rows.empty() ? Row{} : document.rows.back();
  std::string json;
  const auto add = [&json](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(json), "    {}: {},\n", json_quote(name), value);
  };
  add("date", json_quote(last_text(document, &Row::time_utc)));
  add("host_name", json_quote(last_text(document, &Row::host)));
  add("executable", json_quote("attnbench"));
  // Readers with typed fields want these two always; the layout has no word for "not known" but 0.
  add("num_cpus", std::to_string(last.cores.value_or(0)));
  add("mhz_per_cpu", fmt::format("{:.0f}", last.clock_mhz_median.value_or(0)));
  const std::string governor = last_text(document, &Row::governor);
  if (!governor.empty()) add("cpu_scaling_enabled", governor == "performance" ? "false" : "true");
  add("caches", "[]");
  add("load_avg", fmt::format("[{}]", plain_text(last, *find_column("load_avg"))));
  add("library_version", json_quote("attnbench " + last_text(document, &Row::version)));
  const bool is_debug = last_text(document, &Row::flags).find("Debug") != std::string::npos;
  add("library_build_type", json_quote(is_debug ? "debug" : "release"));
  for (const char* name : {"command", "commit", "device_name", "libraries", "compiler", "flags", "fingerprint"}) {
    std::unordered_set<std::string> seen;
    std::string values;
    for (const Row& row : document.rows) {
      const std::string text = plain_text(row, *find_column(name));
      if (!text.empty() && seen.insert(text).second) values.append(values.empty() ? "" : "; ").append(text);
    }
    if (!values.empty()) add(fmt::format("attnbench_{}", name), json_quote(values));
  }
  add("attnbench_left_out", json_quote(left_out_sentence(document)));
  return json + "    \"json_schema_version\": 1\n";
}

std::string benchmark(const Row& row, const std::string& name, std::size_t index) {
  const std::string time = number_text(*row.time_us_median);
  std::int64_t iterations = 0;
  if (__builtin_mul_overflow(row.samples.value_or(1), row.launches_per_sample.value_or(1), &iterations)) {
    iterations = std::numeric_limits<std::int64_t>::max();  // a stranger's row can say anything
  }
  std::string json = fmt::format(
      "    {{\n      \"name\": {0},\n      \"family_index\": {1},\n      \"per_family_instance_index\": 0,\n"
      "      \"run_name\": {0},\n      \"run_type\": \"iteration\",\n      \"repetitions\": 1,\n"
      "      \"repetition_index\": 0,\n      \"threads\": {2},\n      \"iterations\": {3},\n      \"real_time\": {4},\n"
      "      \"cpu_time\": {4},\n      \"time_unit\": \"us\"",
      json_quote(name), index, row.threads.value_or(1), iterations, time);
  for (const std::string_view counter : kCounters) {
    const std::string text = plain_text(row, *find_column(counter));
    if (!text.empty()) json += fmt::format(",\n      {}: {}", json_quote(counter), text);
  }
  if (!row.variant.empty()) json += fmt::format(",\n      \"label\": {}", json_quote(row.variant));
  return json + "\n    }";
}

}  // namespace

std::string emit_gbench(const Document& document, const EmitOptions&) {
  std::string json = "{\n  \"context\": {\n" + context(document) + "  },\n  \"benchmarks\": [";
  std::size_t index = 0;
  for (const NamedRow& named : timed_rows(document)) {
    json += (index == 0 ? "\n" : ",\n") + benchmark(*named.row, named.name, index);
    ++index;
  }
  return json + "\n  ]\n}\n";
}

}  // namespace attnbench::reports
