// The test of the gate, tested: it passes where the gate can trip, and says where it cannot.
#include "reports/self_test.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace attnbench::reports {
namespace {

using ::testing::HasSubstr;

CompareOptions gates(std::vector<const char*> texts) {
  CompareOptions options;
  for (const char* text : texts) options.gates.push_back(*parse_gate(text));
  return options;
}

bool all_passed(const std::vector<Trial>& trials) {
  return std::all_of(trials.begin(), trials.end(), [](const Trial& trial) { return trial.passed; });
}

TEST(SelfTest, TheMadeUpRunTripsEveryKindOfGate) {
  const auto trials = self_test({made_up_run()}, gates({"time_us_median:+5%", "peak_bytes:+2%", "tflops:-5%",
                                                        "gbps:-60%", "time_us_median:-5%", "tflops:+5%"}));
  for (const Trial& trial : trials) EXPECT_TRUE(trial.passed) << trial.name << ": " << trial.found;
  EXPECT_EQ(trials.size(), 2 + 2 * 6u);
  EXPECT_EQ(trials[2].name, "time_us_median made 10 % worse");
  EXPECT_EQ(trials[2].found, "3 of 3 rows regressed");
}

TEST(SelfTest, ANoiseFloorMakesThePlantedChangeLarger) {
  CompareOptions options = gates({"time_us_median:+5%"});
  options.floor_pct = 20;
  const auto trials = self_test({made_up_run()}, options);
  EXPECT_TRUE(all_passed(trials));
  EXPECT_EQ(trials[2].name, "time_us_median made 40 % worse");
}

TEST(SelfTest, SaysWhichRowsTheGateCannotSee) {
  Document run = made_up_run();
  run.rows[1].sample_times_us.resize(3);
  const auto trials = self_test({run}, gates({"time_us_median:+5%"}));
  EXPECT_FALSE(all_passed(trials));
  EXPECT_THAT(trials[2].found, HasSubstr("2 of 3 rows regressed; made_up/2500us is inconclusive: 3 and 3"));
}

TEST(SelfTest, AMetricThatNoRowHasCanNeverTrip) {
  const auto trials = self_test({made_up_run()}, gates({"peak_device_bytes:+2%"}));
  EXPECT_FALSE(trials[2].passed);
  EXPECT_THAT(trials[2].found, HasSubstr("can never trip"));
}

TEST(SelfTest, LaunchesCountByTheirMedians) {
  const auto launches = [](int count) {
    std::vector<Document> run;
    for (int i = 0; i < count; ++i) {
      run.push_back(made_up_run());
      for (Row& row : run.back().rows) *row.time_us_median *= 1 + 0.001 * i;
    }
    return run;
  };
  EXPECT_TRUE(all_passed(self_test(launches(5), gates({"time_us_median:+5%"}))));
  const auto few = self_test(launches(4), gates({"time_us_median:+5%"}));
  EXPECT_FALSE(all_passed(few));
  EXPECT_THAT(few[2].found,
              HasSubstr("4 and 4 launches are too few for 3 rows at alpha 0.05; 5 on each side would do"));
}

}  // namespace
}  // namespace attnbench::reports
