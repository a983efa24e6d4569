#include "reports/rows_io.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "bench/base/rng.hpp"
#include "reports/emit.hpp"
#include "sample_rows.hpp"

namespace attnbench::reports {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string lines_of(const Document& document) {
  std::string lines;
  for (const Row& row : document.rows) lines += to_json_line(row) + "\n";
  return lines;
}

std::string message_of(const std::string& bytes) {
  const auto document = parse_rows(bytes, "in.jsonl");
  if (document) return "read " + std::to_string(document->rows.size()) + " rows";
  EXPECT_EQ(document.error().kind, base::ErrorKind::kUnreadable);
  return document.error().message;
}

std::string edited(std::string line, const std::string& from, const std::string& to) {
  const std::size_t at = line.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return line.replace(at, from.size(), to);
}

const std::string kLine = to_json_line(measured_row("naive", "fwd", 1000, 4096));

TEST(RowsIo, EveryRandomRowComesBackEqualFromItsLine) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Row row = random_row(seed);
    const std::string line = to_json_line(row);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const auto back = from_json_line(line);
    ASSERT_TRUE(back) << back.error().message << "\n" << line;
    ASSERT_EQ(*back, row) << line;
  }
}

TEST(RowsIo, TheObjectFormHasEveryColumnWithNullsAndComesBackWithoutSamples) {
  Row row = measured_row("flash", "bwd", 12.5, 4096);
  row.sample_times_us = {1, 2};
  const std::string line = to_json_object(row);
  EXPECT_THAT(line, HasSubstr("\"window\":null"));
  EXPECT_THAT(line, HasSubstr("\"driver\":null"));
  EXPECT_THAT(line, Not(HasSubstr("sample_times_us")));
  row.sample_times_us.clear();
  EXPECT_EQ(from_json_line(line).value(), row);
}

TEST(RowsIo, TheLineFormLeavesAbsentColumnsOut) {
  EXPECT_THAT(kLine, AllOf(Not(HasSubstr("null")), Not(HasSubstr("window")), HasSubstr("\"causal\":1,")));
}

TEST(RowsIo, TextThatIsNotUtf8IsRepairedAndNumbersThatAreNoneAreLeftOut) {
  Row row = measured_row("naive", "fwd", 1, 1);
  row.note =
      "a\xff"
      "b";
  row.tflops = 1.0 / 0.0;
  const Row back = from_json_line(to_json_line(row)).value();
  EXPECT_EQ(back.note,
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_FALSE(back.tflops);
}

TEST(RowsIo, AWrongTypeIsNamedWithLineAndColumn) {
  EXPECT_THAT(message_of(kLine + "\n" + edited(kLine, "\"batch\":8", "\"batch\":\"8\"") + "\n"),
              AllOf(HasSubstr("in.jsonl: line 2: "), HasSubstr("column batch must be an integer")));
  EXPECT_THAT(message_of(edited(kLine, "\"batch\":8", "\"batch\":8.5")), HasSubstr("batch must be an integer"));
  EXPECT_THAT(message_of(edited(kLine, "\"causal\":1", "\"causal\":true")), HasSubstr("causal must be an integer"));
  EXPECT_THAT(message_of(edited(kLine, "\"batch\":8", "\"batch\":18446744073709551615")),
              HasSubstr("must fit 64 bits"));
  EXPECT_THAT(message_of(edited(kLine, "\"batch\":8", "\"batch\":[8]")), HasSubstr("batch must be a single value"));
  EXPECT_THAT(message_of(edited(kLine, "\"batch\":8", "\"batch\":{}")), HasSubstr("batch must be a single value"));
  EXPECT_THAT(message_of(edited(kLine, "\"gbps\":12.5", "\"gbps\":\"x\"")), HasSubstr("gbps must be a number"));
  EXPECT_THAT(message_of(edited(kLine, "\"gbps\":12.5", "\"gbps\":1e999")), HasSubstr("too large for a double"));
  EXPECT_THAT(message_of(edited(kLine, "\"gbps\":12.5", "\"gbps\":NaN")), HasSubstr("line 1: this is not JSON"));
  EXPECT_THAT(message_of(edited(kLine, "\"kernel\":\"naive\"", "\"kernel\":3")), HasSubstr("kernel must be a text"));
  EXPECT_THAT(message_of(edited(kLine, "\"batch\":8", "\"batch\":8,\"batch\":9")), HasSubstr("batch is given twice"));
}

TEST(RowsIo, SamplesMustBeOneArrayOfNumbers) {
  const auto with = [](const std::string& samples) {
    return message_of(edited(kLine, "}", ",\"sample_times_us\":" + samples + "}"));
  };
  EXPECT_EQ(with("[1,2.5]"), "read 1 rows");
  EXPECT_EQ(with("null"), "read 1 rows");
  EXPECT_THAT(with("3"), HasSubstr("must be an array"));
  EXPECT_THAT(with("{\"a\":1}"), HasSubstr("must be an array"));
  EXPECT_THAT(with("[\"a\"]"), HasSubstr("must hold numbers"));
  EXPECT_THAT(with("[[1]]"), HasSubstr("must hold numbers"));
  EXPECT_THAT(with("[1],\"sample_times_us\":[2]"), HasSubstr("given twice"));
}

TEST(RowsIo, AHigherSchemaVersionIsRefusedNamingBoth) {
  const std::string newer = edited(kLine, "\"schema_version\":1", "\"schema_version\":7,\"batch\":\"of another kind\"");
  EXPECT_THAT(message_of(newer), AllOf(HasSubstr("schema version 7"), HasSubstr("up to 1")));
  EXPECT_THAT(message_of("{\"schema_version\":2,\"rows\":[{\"x\":1}]}"), HasSubstr("schema version 2"));
  EXPECT_THAT(message_of(edited(kLine, "\"schema_version\":1", "\"schema_version\":0")),
              HasSubstr("no schema version 0"));
}

TEST(RowsIo, AnUnknownKeyIsPassedOverWithOneWarning) {
  const std::string line = edited(kLine, "}", ",\"colour\":{\"deep\":[1,{\"batch\":2}]}}");
  const std::string other = edited(line, "naive/fwd", "naive/bwd");
  const auto document = parse_rows(line + "\n" + other + "\n", "in.jsonl");
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(document->rows.size(), 2u);
  EXPECT_EQ(document->rows[0].batch, 8);
  ASSERT_EQ(document->warnings.size(), 1u);
  EXPECT_THAT(document->warnings[0], AllOf(HasSubstr("line 1"), HasSubstr("\"colour\"")));
}

TEST(RowsIo, ALaterRowOfEqualKeyReplacesTheEarlierInItsPlace) {
  Document document = every_status();
  Row again = document.rows[1];
  again.time_us_median = 99;
  document.rows.push_back(again);
  const auto read = parse_rows(lines_of(document), "in.jsonl");
  ASSERT_TRUE(read);
  ASSERT_EQ(read->rows.size(), document.rows.size() - 1);
  EXPECT_EQ(read->rows[1].time_us_median, 99);
}

TEST(RowsIo, ARowCutAnywhereIsDroppedWithAWarningWhenWholeRowsStandBefore) {
  const std::string whole = kLine + "\n";
  const std::string second = to_json_line(every_status().rows[8]);  // has UTF-8 of two and three bytes
  for (std::size_t cut = 1; cut < second.size(); ++cut) {
    const auto read = parse_rows(whole + second.substr(0, cut), "in.jsonl");
    ASSERT_TRUE(read) << cut << " " << read.error().message << "\n" << second.substr(0, cut);
    EXPECT_EQ(read->rows.size(), 1u);
    ASSERT_EQ(read->warnings.size(), 1u) << second.substr(0, cut);
    EXPECT_THAT(read->warnings[0], HasSubstr("line 2"));
    EXPECT_TRUE(is_torn(second.substr(0, cut)));
  }
  EXPECT_FALSE(is_torn(second));
}

TEST(RowsIo, ALineThatHasItsNewlineIsDamagedAndNotTorn) {
  const std::string whole = kLine + "\n";
  for (std::size_t cut = 1; cut < kLine.size(); ++cut) {
    for (const char* ending : {"\n", "\r\n", "\n\n"}) {
      EXPECT_THAT(message_of(whole + kLine.substr(0, cut) + ending), HasSubstr("line 2: ")) << cut;
    }
  }
  EXPECT_THAT(message_of(whole + std::string(5, '\0') + "\n"), HasSubstr("NUL byte"));
}

TEST(RowsIo, ZerosWhereTheLastLineShouldBeAreATornLine) {
  const auto read = parse_rows(kLine + "\n" + kLine.substr(0, 40) + std::string(100, '\0'), "in.jsonl");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->rows.size(), 1u);
  EXPECT_EQ(read->warnings.size(), 1u);
  EXPECT_TRUE(is_torn(std::string(5, '\0')));
  EXPECT_FALSE(is_torn(""));
  EXPECT_FALSE(is_torn("  "));
  EXPECT_FALSE(is_torn("{]"));
  EXPECT_FALSE(is_torn("garbage"));
}

TEST(RowsIo, AWholeLastRowNeedsNoNewline) {
  EXPECT_EQ(message_of(kLine), "read 1 rows");
  EXPECT_EQ(message_of(kLine + "\r\n\n  \n"), "read 1 rows");
}

TEST(RowsIo, AnyOtherDamageIsAMessageWithTheLine) {
  const std::string torn = kLine.substr(0, kLine.size() / 2);
  EXPECT_THAT(message_of(torn), AllOf(HasSubstr("line 1"), HasSubstr("no whole row")));
  EXPECT_THAT(message_of(torn + "\n" + kLine + "\n"), HasSubstr("line 1: this is not JSON"));
  EXPECT_THAT(message_of(kLine + "\n" + torn + "\n" + kLine + "\n"), HasSubstr("line 2: this is not JSON"));
  EXPECT_THAT(message_of(kLine + "\ngarbage\n"), HasSubstr("line 2: this is not JSON"));
  EXPECT_THAT(message_of(kLine + "\n" + kLine + "}"), HasSubstr("line 2: this is not JSON"));
  EXPECT_THAT(message_of(kLine + "\n\n[1]\n"), HasSubstr("line 3: a row is a JSON object"));
  EXPECT_THAT(message_of(kLine + "\n17\n"), HasSubstr("line 2: a row is a JSON object"));
  EXPECT_THAT(message_of(kLine + "\n{\"rows\":[]}\n"), HasSubstr("line 2: "));
  EXPECT_THAT(message_of(edited(kLine, "naive", std::string("na\0ive", 6)) + "\n" + kLine), HasSubstr("NUL byte"));
  EXPECT_THAT(message_of(kLine + std::string("\0{}", 3) + "\n" + kLine), HasSubstr("NUL byte"));
}

TEST(RowsIo, AForeignOrEmptyFileIsRefused) {
  EXPECT_THAT(message_of(""), HasSubstr("no row"));
  EXPECT_THAT(message_of("\n \n"), HasSubstr("no row"));
  EXPECT_THAT(message_of("{\"a\":1}\n"), HasSubstr("line 1: not a row of attnbench: it has no schema_version"));
  EXPECT_THAT(message_of("{\"schema_version\":1,\"kernel\":\"k\"}"), HasSubstr("it has no status"));
  EXPECT_THAT(message_of("kernel,status\nnaive,ok\n"), HasSubstr("line 1: this is not JSON"));
  EXPECT_THAT(message_of("{\"context\":{},\"benchmarks\":[]}"), HasSubstr("not a row of attnbench"));
  EXPECT_THAT(message_of("\x7f"
                         "ELF\x02\x01"),
              HasSubstr("line 1"));
  EXPECT_THAT(message_of("{\"rows\":[]}"), HasSubstr("holds no row"));
  EXPECT_THAT(message_of("{\"rows\":[3]}"), HasSubstr("rows must hold objects"));
  EXPECT_THAT(message_of("{\"rows\":[[]]}"), HasSubstr("rows must hold objects"));
}

TEST(RowsIo, TheJsonDocumentIsReadBackInAnyLayout) {
  Document document = every_status();
  for (Row& row : document.rows) row.sample_times_us.clear();  // in rows.jsonl only
  const std::string json = emit_json(document, {});
  const auto read = parse_rows(json, "run.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->rows, document.rows);
  EXPECT_TRUE(read->warnings.empty());
  std::string on_one_line = json;
  std::erase(on_one_line, '\n');
  EXPECT_EQ(parse_rows(on_one_line, "run.json").value().rows, document.rows);
}

TEST(RowsIo, DamageInAJsonDocumentIsNamedWithItsLine) {
  const std::string json = emit_json(every_status(), {});
  const std::size_t third = json.find("\n{\"schema", json.find("\n{\"schema", json.find("\n{\"schema") + 1) + 1) + 1;
  const auto line = 1 + std::count(json.begin(), json.begin() + static_cast<std::ptrdiff_t>(third), '\n');
  std::string bad = json;
  bad.replace(json.find("\"batch\":8", third), 9, "\"batch\":\"\"");
  EXPECT_THAT(message_of(bad), AllOf(HasSubstr("line " + std::to_string(line) + ": column batch")));
  EXPECT_THAT(message_of(json.substr(0, third + 20)), HasSubstr("this is not JSON"));
  EXPECT_THAT(message_of(json + "x"), HasSubstr("this is not JSON"));
}

TEST(RowsIo, HostileInputIsRefusedAndNothingWorse) {
  const std::string open_arrays(2000000, '[');
  std::string open_objects;
  for (int i = 0; i < 200000; ++i) open_objects += "{\"a\":";
  const std::string head = kLine.substr(0, kLine.size() - 1) + ",\"x\":";
  std::string many_keys = kLine.substr(0, kLine.size() - 1);
  for (int i = 0; i < 100000; ++i) many_keys += ",\"k" + std::to_string(i) + "\":1";
  EXPECT_EQ(message_of(head + open_arrays + std::string(2000000, ']') + "}"), "read 1 rows");
  EXPECT_THAT(message_of(open_arrays), HasSubstr("line 1"));
  EXPECT_THAT(message_of(open_objects), HasSubstr("line 1"));
  EXPECT_THAT(message_of(head + open_objects), HasSubstr("no whole row"));
  EXPECT_EQ(message_of(many_keys + "}"), "read 1 rows");
  EXPECT_LE(parse_rows(many_keys + "}", "x").value().warnings.size(), 16u);
  EXPECT_EQ(message_of(head + std::string(100000, '9') + "}").substr(0, 17), "in.jsonl: line 1:");
  EXPECT_THAT(message_of("{\"schema_version\":" + std::string(400, '1') + "}"), HasSubstr("line 1"));
  EXPECT_THAT(message_of("{\"kernel\":\"\xc3\x28\"}"), HasSubstr("this is not JSON"));
  EXPECT_THAT(message_of("{\"kernel\":\"\\ud800\"}"), HasSubstr("this is not JSON"));
  EXPECT_THAT(message_of("\xff\xfe{\0"), HasSubstr("line 1"));
  EXPECT_LT(message_of("{\"" + std::string(1000000, 'a') + "\":1}").size(), 400u);
  EXPECT_LT(message_of(std::string(1000000, 'a')).size(), 400u);
}

TEST(RowsIo, ALineOfAHundredMegabytesIsRead) {
#ifdef __SANITIZE_THREAD__
  constexpr std::size_t kBytes = 1u << 20;  // every access of one byte is looked up: the whole takes minutes
#else
  constexpr std::size_t kBytes = 100u << 20;
#endif
  Row row = measured_row("naive", "fwd", 1, 1);
  row.note.assign(kBytes, 'x');
  const auto read = parse_rows(to_json_line(row), "big");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rows[0].note.size(), kBytes);
}

TEST(RowsIo, ByteNoiseInAFileIsNeverReadAsSomethingElse) {
  const std::string lines = lines_of(every_status());
  const base::Rng rng(3, 1);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    std::string noisy = lines;
    noisy[rng.bits(2 * i) % noisy.size()] = static_cast<char>(rng.bits(2 * i + 1));
    const auto read = parse_rows(noisy, "noisy");
    if (read) {
      EXPECT_LE(read->rows.size(), every_status().rows.size());
    } else {
      EXPECT_THAT(read.error().message, HasSubstr("noisy: line "));
    }
  }
}

class RowsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/attnbench_rows_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override {
    unlink((directory_ + "/rows.jsonl").c_str());
    rmdir(directory_.c_str());
  }
  std::string directory_;
};

TEST_F(RowsFile, IsFoundByItsDirectoryOrItsName) {
  std::ofstream(directory_ + "/rows.jsonl") << lines_of(every_status());
  EXPECT_EQ(load_rows(directory_).value().rows, every_status().rows);
  EXPECT_EQ(load_rows(directory_ + "/").value().rows, every_status().rows);
  EXPECT_EQ(load_rows(directory_ + "/rows.jsonl").value().rows, every_status().rows);
}

TEST_F(RowsFile, ThatIsNotThereIsNamedWithTheReason) {
  const auto missing = load_rows(directory_ + "/none");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, base::ErrorKind::kUnreadable);
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("/none"), HasSubstr("No such file")));
  EXPECT_THAT(load_rows(directory_).error().message, HasSubstr("/rows.jsonl: No such file"));
  EXPECT_THAT(load_rows("").error().message, HasSubstr("No such file"));
  EXPECT_THAT(load_rows("/dev/zero").error().message, HasSubstr("not a file of rows"));
}

}  // namespace
}  // namespace attnbench::reports
