// `attnbench gbench` on the mock device: Google Benchmark's flags and its JSON, with declared times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/cli/program.hpp"

namespace attnbench::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

const char* const kPoint = "gbench --device mock --seq-len 64 --d-model 16 --batch 1 --causal off --pass fwd ";

TEST(Gbench, ListsThePlannedCasesByTheirKeys) {
  const Outcome outcome = run_program(kPoint + std::string("--kernels naive,flash --benchmark_list_tests"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("naive"));
  EXPECT_THAT(outcome.out, HasSubstr("flash"));
  EXPECT_THAT(outcome.out, HasSubstr("/manual_time"));
}

TEST(Gbench, GivesTheDeclaredTimeInItsJson) {
  const Outcome outcome = run_program(kPoint + std::string("--kernels flash --benchmark_format=json"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\"time_unit\": \"us\""));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\"flops\":")));
  // 10 us and 64 * 64 * 16 products at 4e5 per us, a tenth more because the cache is cold; the declared wobble of five
  // samples averages out to nothing.
  const auto at = outcome.out.find("\"real_time\": ");
  ASSERT_NE(at, std::string::npos);
  const double time_us = std::stod(outcome.out.substr(at + 13));
  EXPECT_NEAR(time_us, (10 + 65536 / 4e5) * 1.1, 0.02);
  const auto number_of = [&](const std::string& name) {
    const auto place = outcome.out.find("\"" + name + "\": ");
    EXPECT_NE(place, std::string::npos) << name;
    return place == std::string::npos ? 0 : std::stod(outcome.out.substr(place + name.size() + 4));
  };
  EXPECT_NEAR(number_of("flop_per_second") * time_us * 1e-6, 4.0 * 65536, 1);
  EXPECT_NEAR(number_of("bytes_per_second") * time_us * 1e-6, 4.0 * 64 * 16 * 4 + 64 * 4, 0.1);
}

TEST(Gbench, TakesTheLibrarysTimeUnit) {
  const Outcome outcome =
      run_program(kPoint + std::string("--kernels flash --benchmark_format=json --benchmark_time_unit=ms"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome.out;
  EXPECT_EQ(json["benchmarks"][0]["time_unit"], "ms");
  EXPECT_NEAR(json["benchmarks"][0]["real_time"].get<double>(), (10 + 65536 / 4e5) * 1.1e-3, 2e-5);
}

TEST(Gbench, TakesTheLibrarysLeastTime) {
  const std::string arguments = kPoint + std::string("--kernels flash --benchmark_format=json ");
  const auto iterations = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
    return json.is_object() ? json["benchmarks"][0]["iterations"].get<int>() : -1;
  };
  const int few = iterations(run_program(arguments + "--benchmark_min_time=0.001"));
  const int many = iterations(run_program(arguments + "--benchmark_min_time=0.1"));
  EXPECT_GE(few, 3);
  EXPECT_NEAR(many, 100 * few, 100);  // few is rounded up
  EXPECT_EQ(iterations(run_program(arguments, "BENCHMARK_MIN_TIME=0.1")), many);
  EXPECT_EQ(iterations(run_program(arguments + "--benchmark_min_time=0")), 3);
}

TEST(Gbench, TakesTheLibrarysFilter) {
  const Outcome outcome =
      run_program(kPoint + std::string("--kernels naive,flash --benchmark_filter=^flash --benchmark_list_tests=true"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("flash"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("naive")));
}

TEST(Gbench, AFilterThatLeavesNothingIsAUsageError) {
  for (const char* filter : {"zzz", "'['", "'-.*'"}) {
    for (const char* list : {"", " --benchmark_list_tests"}) {
      const Outcome outcome =
          run_program(kPoint + std::string("--kernels flash --benchmark_filter=") + filter + std::string(list));
      EXPECT_EQ(outcome.code, 2) << filter;
      EXPECT_THAT(outcome.err, HasSubstr("leaves no case")) << filter;
    }
  }
}

TEST(Gbench, AValueThatTheLibraryDoesNotTakeIsAUsageError) {
  for (const char* flag : {"--benchmark_format=xml", "--benchmark_out_format=xml", "--benchmark_repetitions=many"}) {
    const Outcome outcome = run_program(kPoint + std::string("--kernels flash ") + flag);
    EXPECT_EQ(outcome.code, 2) << flag << outcome.err;
  }
  const Outcome help = run_program(kPoint + std::string("-- --help"));
  EXPECT_EQ(help.code, 0) << help.err;
  EXPECT_THAT(help.out, HasSubstr("--benchmark_filter"));
}

TEST(Gbench, AnOutputThatCannotBeWrittenIsSaidBeforeAnythingRuns) {
  const std::string arguments = kPoint + std::string("--kernels flash ");
  for (const Outcome& outcome :
       {run_program(arguments + "--benchmark_out=/nonexist/x"), run_program(arguments, "BENCHMARK_OUT=/nonexist/x")}) {
    EXPECT_EQ(outcome.code, 3);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("--benchmark_out /nonexist/x cannot be written: No such file"));
  }
}

TEST(Gbench, AWrongKernelIsAnErrorAndNeverATime) {
  const Outcome outcome = run_program(kPoint + std::string("--kernels flash,incorrect --benchmark_format=json"));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\"error_occurred\": true"));
  EXPECT_THAT(outcome.out, HasSubstr("wrong result"));
}

TEST(Gbench, AFlagThatTheLibraryDoesNotKnowIsAUsageError) {
  const Outcome outcome = run_program(kPoint + std::string("--kernels flash --benchmark_speed=full"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--benchmark_speed=full"));
}

/// Sends the signal while the second of three cases is measured; gives the exit code, and the console with its JSON.
int interrupt_with(int signal, std::string& console, std::string& file) {
  const std::string path = testing::TempDir() + "attnbench_gbench_" + std::to_string(getpid());
  Started program(
      {"gbench", "--device", "mock", "--seq-len", "64", "--d-model", "16", "--batch", "1", "--causal", "off", "--pass",
       "fwd", "--kernels", "flash,sleepy,naive", "--benchmark_out=" + path + ".json", "--benchmark_out_format=json"},
      path + ".txt");
  const auto has_first = [&] { return program.output().find("flash/fwd") != std::string::npos; };
  EXPECT_TRUE(program.wait_until(has_first)) << program.output();
  EXPECT_TRUE(program.wait_for_sleeps(20)) << program.output();
  program.send(signal);
  const int code = program.wait();
  console = program.output();
  std::ifstream json(path + ".json");
  file.assign(std::istreambuf_iterator<char>(json), {});
  std::remove((path + ".json").c_str());
  return code;
}

TEST(Gbench, ASignalKeepsWhatWasMeasuredAndEndsWithItsCode) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}, std::pair{SIGHUP, 129}}) {
    std::string console;
    std::string file;
    EXPECT_EQ(interrupt_with(signal, console, file), code);
    for (const std::string& text : {console, file}) {
      EXPECT_THAT(text, HasSubstr("interrupted while it was measured"));
      EXPECT_THAT(text, HasSubstr("interrupted before it began"));
    }
    const auto json = nlohmann::json::parse(file, nullptr, false);
    ASSERT_TRUE(json.is_object()) << file;  // closed, though the run was cut short
    ASSERT_EQ(json["benchmarks"].size(), 3u);
    EXPECT_NEAR(json["benchmarks"][0]["real_time"].get<double>(), (10 + 65536 / 4e5) * 1.1, 0.02);
    for (const std::size_t i : {1u, 2u}) EXPECT_TRUE(json["benchmarks"][i]["error_occurred"].get<bool>());
  }
}

}  // namespace
}  // namespace attnbench::tests
