// `attnbench gbench` on the mock device: Google Benchmark's flags and its JSON, with declared times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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
  EXPECT_THAT(outcome.out, HasSubstr("\"flops\":"));
  EXPECT_THAT(outcome.out, HasSubstr("\"bytes\":"));
  // 10 us and 64 * 64 * 16 products at 4e5 per us, a tenth more because the cache is cold; the declared wobble of five
  // samples averages out to nothing.
  const auto at = outcome.out.find("\"real_time\": ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_NEAR(std::stod(outcome.out.substr(at + 13)), (10 + 65536 / 4e5) * 1.1, 0.02);
}

TEST(Gbench, TakesTheLibrarysFilter) {
  const Outcome outcome =
      run_program(kPoint + std::string("--kernels naive,flash --benchmark_filter=^flash --benchmark_list_tests=true"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("flash"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("naive")));
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

}  // namespace
}  // namespace attnbench::tests
