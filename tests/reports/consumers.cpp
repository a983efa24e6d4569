// Readers by the contracts of CI tools.
#include "consumers.hpp"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "tests/reports/pattern.hpp"

namespace attnbench::tests {
namespace {

using Json = nlohmann::json;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

double finite(const Json& json, const char* key) {
  require(json.contains(key) && json[key].is_number(), std::string(key) + " is not a number in " + json.dump());
  const double value = json[key];
  require(std::isfinite(value), std::string(key) + " is not finite");
  return value;
}

std::string text(const Json& json, const char* key) {
  require(json.contains(key) && json[key].is_string(), std::string(key) + " is not a text in " + json.dump());
  return json[key];
}

/// RFC 8259 by the letter; nlohmann refuses NaN and trailing bytes as JSON.parse does.
Json strict(const std::string& bytes) { return Json::parse(bytes); }

/// A number that nvbench keeps in a string.
double quoted(const Json& json) {
  require(json.is_string(), "a number must be a string here: " + json.dump());
  const std::string digits = json;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  require(!digits.empty() && *end == '\0' && std::isfinite(value), "not a number: " + json.dump());
  return value;
}

template <typename Value>
void add_once(std::map<std::string, Value>& all, const std::string& name, Value value) {
  require(!name.empty(), "an empty name");
  require(all.emplace(name, std::move(value)).second, "the name is there twice: " + name);
}

double nanoseconds_in(const std::string& unit) {
  static const std::map<std::string, double> kUnits{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  require(kUnits.contains(unit), "not a unit of time: " + unit);
  return kUnits.at(unit);
}

}  // namespace

std::map<std::string, Followed> read_googlecpp(const std::string& bytes) {
  const Json json = strict(bytes);
  require(json.at("benchmarks").is_array() && !json["benchmarks"].empty(), "the list is empty");
  std::map<std::string, Followed> all;
  for (const Json& entry : json["benchmarks"]) {
    // Errored rows and aggregates are not filtered by the tool: there must be none.
    require(!entry.contains("error_occurred") && !entry.contains("aggregate_name"), "would be taken for a time");
    Followed followed{finite(entry, "real_time"), text(entry, "time_unit"), {}, {}, {}};
    require(followed.value > 0, "a time of 0 spoils the next ratio");
    nanoseconds_in(followed.unit);
    require(entry.at("iterations").is_number_integer() && entry.at("threads").is_number_integer(), "extra");
    finite(entry, "cpu_time");
    add_once(all, text(entry, "name"), followed);
  }
  return all;
}

std::map<std::string, double> read_google_strictly(const std::string& bytes) {
  const Json json = strict(bytes);
  require(json.at("context").at("caches").is_array(), "context.caches must be an array");
  std::map<std::string, double> all;
  for (const Json& entry : json.at("benchmarks")) {
    require(text(entry, "run_type") == "iteration", "run_type");
    require(!entry.contains("bytes_per_second") && !entry.contains("items_per_second"), "would replace the time");
    // Without /real_time in the name the processor's time is what is kept.
    require(finite(entry, "cpu_time") == finite(entry, "real_time"), "two times");
    add_once(all, text(entry, "name"), finite(entry, "cpu_time") * nanoseconds_in(text(entry, "time_unit")));
  }
  return all;
}

std::map<std::string, Followed> read_custom(const std::string& bytes) {
  const Json json = strict(bytes);
  require(json.is_array() && !json.empty(), "an array with entries is wanted");
  std::map<std::string, Followed> all;
  for (const Json& entry : json) {
    Followed followed{finite(entry, "value"), text(entry, "unit"), {}, {}, {}};
    if (entry.contains("range")) {
      const std::string range = text(entry, "range");
      const auto match = groups_of(range, "^± ([0-9.]+(e[+-]?[0-9]+)?)$");
      require(!match.empty(), "range is not read: " + range);
      followed.range = std::strtod(match[1].c_str(), nullptr);
    }
    if (entry.contains("extra")) text(entry, "extra");
    add_once(all, text(entry, "name"), followed);
  }
  return all;
}

std::map<std::string, Followed> read_bmf(const std::string& bytes) {
  const Json json = strict(bytes);
  require(json.is_object() && !json.empty(), "an object with benchmarks is wanted");
  std::map<std::string, Followed> all;
  for (const auto& [name, measures] : json.items()) {
    require(measures.is_object() && !measures.empty(), "no measure of " + name);
    for (const auto& [measure, metric] : measures.items()) {
      Followed followed{finite(metric, "value"), measure, {}, {}, {}};
      if (metric.contains("lower_value")) followed.lower = finite(metric, "lower_value");
      if (metric.contains("upper_value")) followed.upper = finite(metric, "upper_value");
      require(followed.lower.value_or(followed.value) <= followed.value, "bounds");
      require(followed.upper.value_or(followed.value) >= followed.value, "bounds");
      for (const auto& [key, value] : metric.items()) {
        require(key == "value" || key == "lower_value" || key == "upper_value", "unknown field " + key);
      }
      add_once(all, name + " " + measure, followed);
    }
  }
  return all;
}

std::map<std::string, double> read_hyperfine(const std::string& bytes) {
  std::map<std::string, double> all;
  const Json json = strict(bytes);
  for (const Json& result : json.at("results")) {
    const double median = finite(result, "median");
    for (const char* key : {"mean", "user", "system", "min", "max"}) finite(result, key);
    require(result.at("stddev").is_null() || finite(result, "stddev") >= 0, "stddev");
    require(finite(result, "min") <= median && median <= finite(result, "max"), "the median lies between");
    require(result.at("times").size() == result.at("exit_codes").size(), "an exit code for every time");
    require(!result["times"].empty(), "no times");
    for (const Json& time : result["times"]) require(time.is_number() && time.get<double>() > 0, "a time");
    for (const Json& code : result["exit_codes"]) require(code == 0, "an exit code");
    for (const auto& [key, value] : result.at("parameters").items()) require(value.is_string(), key);
    add_once(all, text(result, "command"), median);
  }
  require(!all.empty(), "no results");
  return all;
}

std::map<std::string, double> read_codspeed(const std::string& bytes) {
  const Json json = strict(bytes);
  text(json.at("creator"), "name");
  text(json.at("creator"), "version");
  require(json["creator"].at("pid").is_number_unsigned(), "pid");
  require(json.at("instrument").at("type") == "walltime", "instrument");
  std::map<std::string, double> all;
  for (const Json& benchmark : json.at("benchmarks")) {
    text(benchmark, "name");
    require(benchmark.at("config").is_object(), "config");
    const Json& stats = benchmark.at("stats");
    for (const char* key : {"min_ns", "max_ns", "mean_ns", "stdev_ns", "q1_ns", "median_ns", "q3_ns", "total_time"}) {
      require(finite(stats, key) >= 0, key);
    }
    for (const char* key : {"rounds", "iqr_outlier_rounds", "stdev_outlier_rounds", "iter_per_round", "warmup_iters"}) {
      require(stats.at(key).is_number_unsigned(), key);
    }
    require(stats["min_ns"] <= stats["q1_ns"] && stats["q1_ns"] <= stats["median_ns"] &&
                stats["median_ns"] <= stats["q3_ns"] && stats["q3_ns"] <= stats["max_ns"],
            "order");
    require(stats["rounds"] > 0 && stats["iqr_outlier_rounds"] <= stats["rounds"], "rounds");
    add_once(all, text(benchmark, "uri"), finite(stats, "median_ns"));
  }
  require(!all.empty(), "no benchmarks");
  return all;
}

std::map<std::string, double> read_nvbench(const std::string& bytes) {
  const Json json = strict(bytes);
  std::set<int> devices;
  for (const Json& device : json.at("devices")) {
    text(device, "name");
    require(devices.insert(device.at("id").get<int>()).second, "a device twice");
  }
  require(json.at("meta").at("argv").is_array(), "meta");
  std::map<std::string, double> all;
  for (const Json& benchmark : json.at("benchmarks")) {
    for (const Json& device : benchmark.at("devices")) require(devices.contains(device.get<int>()), "device");
    std::set<std::string> states;
    for (const Json& state : benchmark.at("states")) {
      require(states.insert(text(state, "name")).second, "a state twice");
      require(devices.contains(state.at("device").get<int>()), "device of a state");
      require(state.at("axis_values").size() == benchmark.at("axes").size(), "a value for every axis");
      for (std::size_t i = 0; i < benchmark["axes"].size(); ++i) {
        const Json& axis = benchmark["axes"][i];
        const Json& value = state["axis_values"][i];
        require(value.at("name") == axis.at("name") && value.at("type") == axis.at("type"), "axis");
        bool known = false;
        for (const Json& one : axis.at("values")) known = known || one.at("input_string") == value.at("value");
        require(known, "a value that its axis does not have");
      }
      if (state.at("is_skipped").get<bool>()) {
        text(state, "skip_reason");
        continue;
      }
      std::map<std::string, double> summaries;
      for (const Json& summary : state.at("summaries")) {
        const Json& data = summary.at("data").at(0);
        require(data.at("name") == "value", "data");
        add_once(summaries, text(summary, "tag"), quoted(data.at("value")));
      }
      require(summaries.contains("nv/cold/time/gpu/median"), "no median");
      add_once(all, text(benchmark, "name") + " " + text(state, "name"), summaries["nv/cold/time/gpu/median"]);
    }
  }
  return all;
}

std::vector<AnnotationLine> read_annotations(const std::string& bytes) {
  const auto unescaped = [](std::string value) {
    for (const auto& [code, letter] : std::vector<std::pair<std::string, std::string>>{
             {"%0D", "\r"}, {"%0A", "\n"}, {"%3A", ":"}, {"%2C", ","}, {"%25", "%"}}) {
      for (std::size_t at = 0; (at = value.find(code, at)) != std::string::npos; at += 1) {
        value.replace(at, code.size(), letter);
      }
    }
    return value;
  };
  std::vector<AnnotationLine> all;
  std::map<std::string, int> counts;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = bytes.find('\n', begin);
    require(end != std::string::npos, "the last line has no end");
    const std::string line = bytes.substr(begin, end - begin);
    begin = end + 1;
    const auto match = groups_of(line, "^::(error|warning) title=([^:,\r\n]*)::([^\r\n]*)$");
    require(!match.empty(), "not a command: " + line);
    require(++counts[match[1]] <= 10, "more than ten are not shown");
    all.push_back({match[1], unescaped(match[2]), unescaped(match[3])});
  }
  return all;
}

std::size_t read_step_summary(const std::string& bytes) {
  require(bytes.size() <= 1 << 20, "longer than 1 MiB");
  strict(Json(bytes).dump());  // throws where the bytes are not UTF-8
  std::size_t cells = 0;
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string line = bytes.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line[0] != '|') {
      cells = 0;
      continue;
    }
    std::size_t here = 0;
    for (std::size_t i = 0; i < line.size(); ++i) here += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
    require(cells == 0 || here == cells, "a line with other cells: " + line);
    cells = here;
    ++lines;
  }
  return lines;
}

}  // namespace attnbench::tests
