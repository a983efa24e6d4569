#include "reports/emit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "reports/columns.hpp"
#include "sample_rows.hpp"

namespace attnbench::reports {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// Records of an RFC 4180 text, read by the letter of its grammar.
std::vector<std::vector<std::string>> csv_records(const std::string& csv) {
  std::vector<std::vector<std::string>> records(1, {""});
  bool quoted = false;
  for (std::size_t i = 0; i < csv.size(); ++i) {
    std::string& field = records.back().back();
    if (quoted) {
      if (csv[i] != '"') {
        field += csv[i];
      } else if (i + 1 < csv.size() && csv[i + 1] == '"') {
        field += csv[i++];
      } else {
        quoted = false;
      }
    } else if (csv[i] == '"') {
      EXPECT_TRUE(field.empty()) << "a quote inside an unquoted field";
      quoted = true;
    } else if (csv[i] == ',') {
      records.back().emplace_back();
    } else if (csv.compare(i, 2, "\r\n") == 0) {
      ++i;
      records.push_back({""});
    } else {
      EXPECT_NE(csv[i], '\r');
      EXPECT_NE(csv[i], '\n');
      field += csv[i];
    }
  }
  EXPECT_FALSE(quoted);
  EXPECT_EQ(records.back(), std::vector<std::string>{""}) << "the last record ends in CR LF";
  records.pop_back();
  return records;
}

std::vector<std::string> values_of(const Row& row) {
  std::vector<std::string> values;
  for (const Column& column : columns()) values.push_back(plain_text(row, column));
  return values;
}

TEST(Emit, EveryFormatMatchesItsGoldenFile) {
  const Document document = every_status();
  for (const Emitter& emitter : emitters()) {
    const bool plain = emitter.name == "csv" || emitter.name == "json" || emitter.name == "md";
    const char* ending = plain                            ? ""
                         : emitter.name == "junit"        ? ".xml"
                         : emitter.name == "step-summary" ? ".md"
                         : emitter.name == "annotations"  ? ".txt"
                                                          : ".json";
    expect_golden("every_status." + std::string(emitter.name) + ending, emit(emitter.name, document, {}).value());
  }
}

TEST(Emit, AnUnknownFormatIsAUsageErrorThatNamesTheOthers) {
  const auto bytes = emit("xml", every_status(), {});
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().kind, base::ErrorKind::kUsage);
  EXPECT_THAT(bytes.error().message, AllOf(HasSubstr("xml"), HasSubstr("csv, json, md, gbench")));
}

TEST(Emit, NoRowsGiveAWholeDocumentInEveryFormat) {
  for (const Emitter& emitter : emitters()) {
    const auto bytes = emit(emitter.name, {}, {});
    EXPECT_EQ(bytes.has_value(), emitter.needs == Needs::kNothing) << emitter.name;
    if (!bytes) continue;
    EXPECT_EQ(bytes->empty(), emitter.name == "annotations") << emitter.name;
  }
  EXPECT_EQ(csv_records(emit_csv({}, {})).size(), 1u);
  EXPECT_TRUE(Json::parse(emit_json({}, {}))["rows"].empty());
  EXPECT_TRUE(Json::parse(emit_gbench({}, {}))["benchmarks"].empty());
}

TEST(EmitCsv, ReadsBackToEveryValueOfEveryRow) {
  Document document = every_status();
  for (std::uint64_t seed = 0; seed < 300; ++seed) document.rows.push_back(random_row(seed));
  const auto records = csv_records(emit_csv(document, {}));
  ASSERT_EQ(records.size(), document.rows.size() + 1);
  for (std::size_t i = 0; i < columns().size(); ++i) EXPECT_EQ(records[0][i], columns()[i].name);
  for (std::size_t i = 0; i < document.rows.size(); ++i) EXPECT_EQ(records[i + 1], values_of(document.rows[i])) << i;
}

TEST(EmitCsv, LeavesMissingValuesEmptyAndNeverWritesNan) {
  Row row = measured_row("naive", "fwd", 1, 1);
  row.tflops = std::nan("");
  const std::string csv = emit_csv({"", {row}, {}}, {});
  EXPECT_THAT(csv, Not(HasSubstr("nan")));
  EXPECT_THAT(csv, HasSubstr(",,"));
}

TEST(EmitJson, IsStrictJsonWithEveryColumnAndNullForMissing) {
  Document document = every_status();
  document.rows.push_back(random_row(5));
  document.rows.back().gbps = INFINITY;
  const Json json = Json::parse(emit_json(document, {}));
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["context"]["baseline"], "naive");
  ASSERT_EQ(json["rows"].size(), document.rows.size());
  for (std::size_t i = 0; i < document.rows.size(); ++i) {
    for (const Column& column : columns()) {
      const Json& value = json["rows"][i].at(std::string(column.name));
      EXPECT_EQ(value.is_null(), is_absent(document.rows[i], column)) << column.name;
    }
  }
  EXPECT_EQ(json["rows"][0]["time_us_median"], 1000);
  EXPECT_TRUE(json["rows"][0]["peak_bytes"].is_number_integer());
}

TEST(EmitGbench, HoldsOnlyTimingsUnderUniqueNames) {
  Document document = every_status();
  document.rows.push_back(document.rows[0]);  // of the same key
  document.rows.push_back(document.rows[0]);
  for (int i = 0; i < 2; ++i) document.rows[document.rows.size() - 1 - static_cast<std::size_t>(i)].key.clear();
  Row untimed = document.rows[0];
  untimed.time_us_median.reset();
  document.rows.push_back(untimed);
  const Json json = Json::parse(emit_gbench(document, {}));
  std::set<std::string> names;
  for (const Json& benchmark : json["benchmarks"]) {
    EXPECT_TRUE(names.insert(benchmark.at("name")).second) << benchmark["name"];
    EXPECT_EQ(benchmark.at("run_name"), benchmark["name"]);
    EXPECT_EQ(benchmark.at("run_type"), "iteration");
    EXPECT_GT(benchmark.at("real_time").get<double>(), 0);
    EXPECT_EQ(benchmark.at("cpu_time"), benchmark["real_time"]);
    EXPECT_EQ(benchmark.at("time_unit"), "us");
    EXPECT_EQ(benchmark.at("iterations"), 20);
    EXPECT_TRUE(benchmark.at("threads").is_number_integer());
    EXPECT_FALSE(benchmark.contains("error_occurred"));
    EXPECT_FALSE(benchmark.contains("bytes_per_second"));
  }
  EXPECT_EQ(names.size(), 6u);
  EXPECT_TRUE(json["context"].at("caches").is_array());
  EXPECT_EQ(json["context"].at("json_schema_version"), 1);
  EXPECT_THAT(json["context"].at("attnbench_left_out").get<std::string>(), HasSubstr("9 of 15 rows"));
}

TEST(EmitGbench, IterationsCountEveryLaunchOfASample) {
  Row row = measured_row("flash", "fwd", 3, 1);
  row.launches_per_sample = 16;
  const Json json = Json::parse(emit_gbench({"", {row}, {}}, {}));
  EXPECT_EQ(json["benchmarks"][0]["iterations"], 320);
}

/// Cells of a Markdown table line: the pipes that are not escaped.
std::size_t cells_of(const std::string& line) {
  std::size_t pipes = 0;
  for (std::size_t i = 0; i < line.size(); ++i) pipes += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
  return pipes - 1;
}

TEST(EmitMd, EveryTableLineHasAsManyCellsAsItsTitle) {
  Document document = every_status();
  for (Row& row : document.rows) row.variant = "a|b`c`*d*<e>&f\ng";
  std::istringstream lines(emit_md(document, {}));
  std::size_t expected = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|') {
      expected = 0;
      continue;
    }
    if (expected == 0) expected = cells_of(line);
    EXPECT_EQ(cells_of(line), expected) << line;
  }
}

TEST(EmitMd, HasTheReferenceTable) {
  Document document;
  document.rows = {measured_row("naive", "fwd", 1000, 100), measured_row("naive", "bwd", 2000, 400),
                   measured_row("flash", "fwd", 500, 50), measured_row("flash", "bwd", 2500, 100)};
  const std::string md = emit_md(document, {});
  EXPECT_THAT(md, HasSubstr("| d_model | seq_len | kernel | fwd speedup | bwd speedup | peak mem reduction |"));
  EXPECT_THAT(md, HasSubstr("| 16 | 256 | flash | 2.00 | 0.80 | 4.00 |"));
}

}  // namespace
}  // namespace attnbench::reports
