// nvbench's JSON, so that nvbench_compare reads our rows. A kernel is a benchmark, a point a state, and what tells
// points apart are axes. Numbers in axis values and summaries are strings there. Times are in seconds under the tags of
// nvbench's isolated ("cold") measurement, whatever the device and the state of the caches: cache is an axis.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "bench/base/stats.hpp"
#include "reports/columns.hpp"
#include "reports/emit.hpp"
#include "reports/format.hpp"
#include "reports/named_rows.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::reports {
namespace {

constexpr std::array<std::string_view, 13> kAxes = {"pass",     "dtype",    "causal",  "batch",     "heads",
                                                    "kv_heads", "head_dim", "seq_len", "seq_len_k", "window",
                                                    "cache",    "threads",  "timing"};

using Rows = std::vector<NamedRow>;

std::string axis_text(const Row& row, std::string_view axis) {
  std::string text = plain_text(row, *find_column(axis));
  return text.empty() ? "none" : text;
}

std::string axes(const Rows& rows) {
  std::string json;
  for (const std::string_view axis : kAxes) {
    std::vector<std::string> values;
    for (const NamedRow& named : rows) {
      std::string text = axis_text(*named.row, axis);
      if (std::find(values.begin(), values.end(), text) == values.end()) values.push_back(std::move(text));
    }
    std::string list;
    for (const std::string& value : values) {
      list +=
          fmt::format(R"({}{{"input_string": {}, "description": ""}})", list.empty() ? "" : ", ", json_quote(value));
    }
    json += fmt::format("{}        {{\"name\": {}, \"type\": \"string\", \"flags\": \"\", \"values\": [{}]}}",
                        json.empty() ? "\n" : ",\n", json_quote(axis), list);
  }
  return json;
}

/// One summary, whose number is a string.
std::string summary(std::string_view tag, std::string_view hint, std::string_view type, const std::string& value) {
  return fmt::format(R"({{"tag": {}, "name": {}, "hint": {}, "description": "", )"
                     R"("data": [{{"name": "value", "type": {}, "value": {}}}]}})",
                     json_quote(tag), json_quote(tag.substr(tag.rfind('/') + 1)), json_quote(hint), json_quote(type),
                     json_quote(value));
}

std::string summaries(const Row& row) {
  std::string json;
  const auto add = [&json](std::string_view tag, std::string_view hint, const Number& value, double factor) {
    if (!value || !std::isfinite(*value * factor)) return;
    json += (json.empty() ? "\n            " : ",\n            ") +
            summary(tag, hint, "float64", number_text(*value * factor));
  };
  constexpr double kSecondsPerUs = 1e-6;
  const Number stdev = base::stdev(row.sample_times_us);
  const Number mean = row.time_us_mean ? row.time_us_mean : base::mean(row.sample_times_us);
  add("nv/cold/time/gpu/median", "duration", row.time_us_median, kSecondsPerUs);
  add("nv/cold/time/gpu/mean", "duration", mean, kSecondsPerUs);
  add("nv/cold/time/gpu/stdev/absolute", "duration", stdev, kSecondsPerUs);
  if (stdev && mean && *mean > 0) add("nv/cold/time/gpu/stdev/relative", "percentage", *stdev / *mean, 1);
  add("nv/cold/time/gpu/min", "duration", row.time_us_min, kSecondsPerUs);
  add("nv/cold/time/gpu/max", "duration", row.time_us_max, kSecondsPerUs);
  add("nv/cold/time/gpu/q1", "duration", row.time_us_q1, kSecondsPerUs);
  add("nv/cold/time/gpu/q3", "duration", row.time_us_q3, kSecondsPerUs);
  add("nv/cold/bw/global/bytes_per_second", "byte_rate", row.gbps, 1e9);
  add("nv/cold/sm_clock_rate/mean", "frequency", row.clock_mhz_median, 1e6);
  if (row.samples) {
    json += ",\n            " + summary("nv/cold/sample_size", "sample_size", "int64", std::to_string(*row.samples));
  }
  return json;
}

std::string state(const NamedRow& named, std::size_t device) {
  const Row& row = *named.row;
  std::string values;
  for (const std::string_view axis : kAxes) {
    values += fmt::format(R"({}{{"name": {}, "type": "string", "value": {}}})", values.empty() ? "" : ", ",
                          json_quote(axis), json_quote(axis_text(row, axis)));
  }
  const bool timed = is_timed(row);
  const std::string skip =
      timed ? "" : fmt::format(", \"skip_reason\": {}", json_quote(row.reason.empty() ? row.status : row.reason));
  return fmt::format(
      "        {{\"name\": {}, \"device\": {}, \"type_config_index\": 0,\n          \"axis_values\": [{}],\n"
      "          \"summaries\": [{}],\n          \"is_skipped\": {}{}}}",
      json_quote(named.name), device, values, timed ? summaries(row) : "", !timed, skip);
}

std::string benchmark(const std::string& name, const Rows& rows, std::size_t index,
                      const std::map<std::string, std::size_t>& devices) {
  std::string used;
  for (const auto& [id, place] : devices) {
    const auto has = [&id = id](const NamedRow& named) { return named.row->device == id; };
    if (std::any_of(rows.begin(), rows.end(), has)) used += fmt::format("{}{}", used.empty() ? "" : ", ", place);
  }
  std::string states;
  for (const NamedRow& named : rows) {
    states += (states.empty() ? "\n" : ",\n") + state(named, devices.at(named.row->device));
  }
  return fmt::format(
      "    {{\"name\": {}, \"index\": {}, \"min_samples\": 1, \"timeout\": 0, \"devices\": [{}],\n"
      "      \"axes\": [{}\n      ],\n      \"states\": [{}\n      ]}}",
      json_quote(name), index, used, axes(rows), states);
}

std::string meta(const Document& document) {
  std::string command;
  std::string commit;
  for (const Row& row : document.rows) {
    if (!row.command.empty()) command = row.command;
    if (!row.commit.empty()) commit = row.commit;
  }
  return fmt::format(
      "  \"meta\": {{\"argv\": [{}],\n    \"version\": {{\"json\": {{\"major\": 1, \"minor\": 0, \"patch\": 0, "
      "\"string\": \"1.0.0\"}},\n      \"attnbench\": {{\"git_sha\": {}}}}}}},\n",
      json_quote(command), json_quote(commit));
}

}  // namespace

std::string emit_nvbench(const Document& document, const EmitOptions&) {
  std::map<std::string, std::size_t> devices;  // index by id
  std::string device_list;
  std::vector<std::pair<std::string, Rows>> benchmarks;
  for (const NamedRow& named : named_rows(document)) {
    const Row& row = *named.row;
    if (devices.emplace(row.device, devices.size()).second) {
      device_list += fmt::format("{}    {{\"id\": {}, \"name\": {}}}", device_list.empty() ? "\n" : ",\n",
                                 devices.size() - 1, json_quote(row.device_name));
    }
    const std::string name = kernel_text(row);
    auto found = std::find_if(benchmarks.begin(), benchmarks.end(), [&](const auto& b) { return b.first == name; });
    if (found == benchmarks.end()) found = benchmarks.insert(benchmarks.end(), {name, {}});
    found->second.push_back(named);
  }
  std::string json = "{\n" + meta(document) + "  \"devices\": [" + device_list + "\n  ],\n  \"benchmarks\": [";
  for (std::size_t i = 0; i < benchmarks.size(); ++i) {
    json += (i == 0 ? "\n" : ",\n") + benchmark(benchmarks[i].first, benchmarks[i].second, i, devices);
  }
  return json + "\n  ]\n}\n";
}

}  // namespace attnbench::reports
