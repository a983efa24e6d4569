// Files for CI tools, read as the tools read them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consumers.hpp"
#include "reports/emit.hpp"
#include "reports/named_rows.hpp"
#include "sample_rows.hpp"

namespace attnbench::reports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace attnbench::tests;

/// Rows of every status, and rows with awkward texts and numbers.
Document awkward() {
  Document document = every_status();
  for (std::uint64_t seed = 0; seed < 200; ++seed) document.rows.push_back(random_row(seed));
  document.rows.push_back(document.rows.front());  // of the same key
  for (Row& row : document.rows) {
    if (row.time_us_ci_low && row.time_us_median)
      row.time_us_ci_low = std::min(*row.time_us_ci_low, *row.time_us_median);
    if (row.time_us_ci_high && row.time_us_median) {
      row.time_us_ci_high = std::max(*row.time_us_ci_high, *row.time_us_median);
    }
  }
  return document;
}

std::string bytes_of(std::string_view format, const Document& document) {
  const auto bytes = emit(format, document, {});
  EXPECT_TRUE(bytes) << (bytes ? "" : bytes.error().message);
  return bytes.value_or("");
}

TEST(EmitCi, TheNamesOfTheHeaderAreThoseOfTheTable) {
  std::vector<std::string_view> names;
  for (const Emitter& emitter : emitters()) names.push_back(emitter.name);
  EXPECT_EQ(names, std::vector<std::string_view>(kFormats.begin(), kFormats.end()));
}

TEST(EmitCi, GoogleReadersTakeEveryTimeAndNothingElse) {
  const auto followed = read_googlecpp(bytes_of("googlecpp", every_status()));
  EXPECT_EQ(followed.size(), 4u);
  EXPECT_EQ(followed.at("naive/fwd/d16_s256/cold").value, 1000);
  EXPECT_EQ(followed.at("naive/fwd/d16_s256/cold").unit, "us");
  EXPECT_EQ(read_google_strictly(bytes_of("googlecpp", every_status())).at("flash/fwd/d16_s256/cold"), 125500);
  const Document document = awkward();
  EXPECT_EQ(read_googlecpp(bytes_of("googlecpp", document)).size(), timed_rows(document).size());
}

TEST(EmitCi, BencherTakesThreeMeasuresWithTheIntervalAsBounds) {
  const auto followed = read_bmf(bytes_of("bmf", every_status()));
  const Followed& latency = followed.at("naive/fwd/d16_s256/cold latency");
  EXPECT_EQ(latency.value, 1e6);
  EXPECT_EQ(latency.lower, 980000);
  EXPECT_EQ(latency.upper, 1020000);
  EXPECT_EQ(followed.at("naive/fwd/d16_s256/cold peak-memory").value, 4 << 20);
  EXPECT_DOUBLE_EQ(followed.at("naive/fwd/d16_s256/cold throughput").value, 0.0567e12);
  EXPECT_EQ(followed.at("flash/bwd/d16_s256/cold latency").lower, std::nullopt);
  EXPECT_EQ(followed.size(), 12u);
  read_bmf(bytes_of("bmf", awkward()));
}

TEST(EmitCi, GithubActionBenchmarkGetsOneDirectionAFile) {
  const auto smaller = read_custom(bytes_of("gha-smaller", every_status()));
  EXPECT_EQ(smaller.at("naive/fwd/d16_s256/cold time").value, 1000);
  EXPECT_EQ(smaller.at("naive/fwd/d16_s256/cold time").range, 20);
  EXPECT_EQ(smaller.at("naive/fwd/d16_s256/cold peak memory").unit, "bytes");
  EXPECT_EQ(smaller.size(), 8u);
  const auto bigger = read_custom(bytes_of("gha-bigger", every_status()));
  EXPECT_EQ(bigger.at("naive/fwd/d16_s256/cold compute").value, 0.0567);
  EXPECT_EQ(bigger.size(), 7u);  // one row has no gbps
  for (const auto& [name, followed] : bigger) EXPECT_FALSE(smaller.contains(name)) << name;
  read_custom(bytes_of("gha-smaller", awkward()));
  read_custom(bytes_of("gha-bigger", awkward()));
}

TEST(EmitCi, JunitHasACaseForEveryRowByItsStatus) {
  const auto cases = read_junit(bytes_of("junit", every_status()));
  std::map<std::string, std::string> outcomes;
  const Document document = every_status();
  ASSERT_EQ(cases.size(), document.rows.size());
  for (std::size_t i = 0; i < cases.size(); ++i) outcomes[document.rows[i].status] = cases[i].outcome;
  EXPECT_EQ(outcomes, (std::map<std::string, std::string>{{"ok", "passed"},
                                                          {"incorrect", "failure"},
                                                          {"failed", "failure"},
                                                          {"timeout", "error"},
                                                          {"device_lost", "error"},
                                                          {"unsupported", "skipped"},
                                                          {"oom", "skipped"},
                                                          {"oom_predicted", "skipped"},
                                                          {"interrupted", "skipped"}}));
  EXPECT_EQ(cases[0].seconds, 0.001);
  EXPECT_EQ(cases[4].message, "incorrect: dq differs from the oracle, \"badly\"");
  EXPECT_EQ(cases[6].message, "oom: the device said:\nno memory");
  EXPECT_EQ(read_junit(bytes_of("junit", awkward())).size(), awkward().rows.size());
  Document binary = every_status();
  binary.rows[4].reason = "\x01 \xff \xed\xa0\x80 \xef\xbf\xbf";  // no letter of XML among them
  EXPECT_THAT(read_junit(bytes_of("junit", binary))[4].message, HasSubstr("\xEF\xBF\xBD"));
}

TEST(EmitCi, ToolsThatWantSamplesGetThem) {
  const auto hyperfine = read_hyperfine(bytes_of("hyperfine", every_status()));
  EXPECT_DOUBLE_EQ(hyperfine.at("naive/fwd/d16_s256/cold"), 0.001);
  EXPECT_EQ(hyperfine.size(), 2u);
  const auto codspeed = read_codspeed(bytes_of("codspeed", every_status()));
  EXPECT_DOUBLE_EQ(codspeed.at("attnbench::naive/fwd/d16_s256/cold"), 1e6);
  EXPECT_EQ(codspeed.size(), 2u);
  read_hyperfine(bytes_of("hyperfine", awkward()));
  read_codspeed(bytes_of("codspeed", awkward()));
}

TEST(EmitCi, NvbenchGetsSecondsAndSkippedStates) {
  const auto medians = read_nvbench(bytes_of("nvbench", every_status()));
  EXPECT_EQ(medians.size(), 4u);
  EXPECT_DOUBLE_EQ(medians.at("naive naive/fwd/d16_s256/cold"), 0.001);
  EXPECT_EQ(read_nvbench(bytes_of("nvbench", awkward())).size(), timed_rows(awkward()).size());
}

TEST(EmitCi, AnnotationsAreTenAtMostAndReadBack) {
  const auto lines = read_annotations(bytes_of("annotations", every_status()));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].title, "attnbench incorrect");
  EXPECT_THAT(lines[0].message, HasSubstr("dq differs from the oracle, \"badly\""));
  Document many;
  for (int i = 0; i < 30; ++i) {
    many.rows.push_back(refused_row("blas", "fwd", status::kFailed, "100%\r\n:, " + std::to_string(i)));
    many.rows.back().key += std::to_string(i);
  }
  const auto shown = read_annotations(bytes_of("annotations", many));
  ASSERT_EQ(shown.size(), 10u);
  EXPECT_THAT(shown[3].message, HasSubstr("100%\r\n:, 3"));
  EXPECT_EQ(shown.back().message, "30 in all; the table has the rest");
}

TEST(EmitCi, AStepSummaryStaysUnderItsLimitWhateverTheRowsSay) {
  EXPECT_EQ(read_step_summary(bytes_of("step-summary", every_status())), 2 + every_status().rows.size());
  read_step_summary(bytes_of("step-summary", awkward()));
  Document huge;
  for (int i = 0; i < 5000; ++i) {
    huge.rows.push_back(refused_row("blas", "fwd", status::kFailed, std::string(10000, '|')));
    huge.rows.back().key += std::to_string(i);
  }
  const std::string text = bytes_of("step-summary", huge);
  EXPECT_EQ(read_step_summary(text), 202u);
  EXPECT_THAT(text, HasSubstr("4800 more rows are not shown"));
}

TEST(EmitCi, AFormatWhoseReaderRefusesAnEmptyListIsNotWritten) {
  Document untimed;
  untimed.rows.push_back(refused_row("blas", "fwd", status::kFailed, "no"));
  for (const char* format : {"googlecpp", "bmf", "gha-smaller", "gha-bigger", "hyperfine", "codspeed"}) {
    const auto bytes = emit(format, untimed, {});
    ASSERT_FALSE(bytes) << format;
    EXPECT_THAT(bytes.error().message, HasSubstr("empty list"));
  }
  Document without_samples;
  without_samples.rows.push_back(measured_row("flash", "fwd", 1, 1));
  EXPECT_TRUE(emit("bmf", without_samples, {}));
  EXPECT_THAT(emit("codspeed", without_samples, {}).error().message, HasSubstr("--json leaves them out"));
}

}  // namespace
}  // namespace attnbench::reports
