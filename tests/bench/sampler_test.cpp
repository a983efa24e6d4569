// The sampler and its stopping rule on a scripted clock: no test waits for anything.
#include "bench/measure/sampler.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "bench/measure/stopping.hpp"

namespace attnbench::measure {
namespace {

/// Time passes only where the script says so.
struct Script {
  double now_s = 0;
  std::string order;  // which stopwatch took each sample
  bool stop = false;
  int stop_after = -1;  // samples

  Surroundings world() {
    return {[this] { return now_s; }, [this] { return stop || static_cast<int>(order.size()) == stop_after; }};
  }
};

/// Gives its times in turn, over and over; each take costs `cost_s` of wall time beside the time itself.
class ScriptedStopwatch : public kernels::Stopwatch {
 public:
  ScriptedStopwatch(Script& script, char name, std::vector<double> times_us, double cost_s = 0)
      : script_(script), name_(name), times_us_(std::move(times_us)), cost_s_(cost_s) {}

  base::Result<kernels::Sample> take() override {
    script_.order += name_;
    if (taken_ == fail_at) return base::fail(base::ErrorKind::kFailed, "scripted fault");
    kernels::Sample sample;
    sample.time_us = times_us_[taken_++ % times_us_.size()];
    sample.throttled = throttled;
    if (!stands_still) script_.now_s += sample.time_us * 1e-6 + cost_s_;
    return sample;
  }
  kernels::StopwatchInfo info() const override { return {timing, 1, 0, {}, {}, {}}; }

  std::size_t fail_at = static_cast<std::size_t>(-1);
  std::optional<bool> throttled;
  kernels::Timing timing = kernels::Timing::kWall;
  bool stands_still = false;  // no time passes in the world

 private:
  Script& script_;
  char name_;
  std::vector<double> times_us_;
  double cost_s_;
  std::size_t taken_ = 0;
};

std::vector<Series> sample(std::vector<kernels::Stopwatch*> stopwatches, const cli::Sampling& sampling,
                           Script& script) {
  return take_samples(stopwatches, sampling, script.world());
}

TEST(Sampler, TakesTheKernelsOfAPointInTurn) {
  Script script;
  ScriptedStopwatch a(script, 'a', {10}), b(script, 'b', {20}), c(script, 'c', {30});
  cli::Sampling sampling;
  sampling.samples_max = 4;
  sample({&a, &b, &c}, sampling, script);
  EXPECT_EQ(script.order, "abcabcabcabc");
}

TEST(Sampler, LeavesTheOthersInTurnWhenOneHasEnough) {
  Script script;
  ScriptedStopwatch slow(script, 's', {2e6}), fast(script, 'f', {100});
  cli::Sampling sampling;
  sampling.samples_max = 6;
  const auto series = sample({&slow, &fast}, sampling, script);
  EXPECT_EQ(script.order, "sfsfsffff");  // two slow samples use up three seconds, but the least number is three
  EXPECT_EQ(series[0].stop, StopReason::kTimeLimit);
  EXPECT_EQ(series[0].times_us.size(), 3u);
  EXPECT_EQ(series[1].stop, StopReason::kSamples);
}

TEST(Sampler, StopsOnceTheMedianIsKnown) {
  Script script;
  ScriptedStopwatch steady(script, 'a', {50000});
  const auto series = sample({&steady}, {}, script);
  EXPECT_EQ(series[0].stop, StopReason::kNoise);
  EXPECT_EQ(series[0].times_us.size(), 6u);  // six are needed for an interval; 0.3 s are past the least time of 0.2 s
}

TEST(Sampler, GoesOnUntilTheLeastTimeHoweverSteadyTheSamples) {
  Script script;
  ScriptedStopwatch steady(script, 'a', {10000});
  const auto series = sample({&steady}, {}, script);
  EXPECT_EQ(series[0].stop, StopReason::kNoise);
  EXPECT_GE(series[0].times_us.size(), 20u);
  EXPECT_LE(series[0].times_us.size(), 21u);  // the sum of twenty may round to just under 0.2 s
}

TEST(Sampler, ANoisyKernelEndsAtItsTimeLimit) {
  Script script;
  ScriptedStopwatch noisy(script, 'a', {10000, 10300});  // a half width of 1.5 % that stays: near the bound of 1 %
  const auto series = sample({&noisy}, {}, script);
  EXPECT_EQ(series[0].stop, StopReason::kTimeLimit);
  EXPECT_NEAR(series[0].wall_s, 3.0, 0.02);
}

TEST(Sampler, CountsTheFlushAgainstTheTimeLimit) {
  Script script;
  ScriptedStopwatch tiny(script, 'a', {50, 51.5}, 0.1);
  const auto series = sample({&tiny}, {}, script);
  EXPECT_EQ(series[0].stop, StopReason::kTimeLimit);
  EXPECT_NEAR(static_cast<double>(series[0].times_us.size()), 30, 1);
}

TEST(Sampler, GivesUpOnAnIntervalThatTheRestOfTheTimeCannotBring) {
  Script script;
  ScriptedStopwatch wild(script, 'a', {10000, 20000});  // a half width of a third of the median
  const auto series = sample({&wild}, {}, script);
  EXPECT_EQ(series[0].stop, StopReason::kOutOfReach);
  EXPECT_NEAR(series[0].wall_s, 1.0, 0.021);  // a third of the limit of 3 s, and at most one sample more
}

TEST(Sampler, GivesANoisyStartTheTimeToFade) {
  Script script;
  std::vector<double> times(60, 50000);  // 20 samples that are 3 % off use a third of the limit, calm ones follow
  for (std::size_t i = 0; i < 20; ++i) times[i] = i % 2 == 0 ? 48500 : 51500;
  ScriptedStopwatch fading(script, 'a', times);
  const auto series = sample({&fading}, {}, script);
  EXPECT_EQ(series[0].stop, StopReason::kNoise);
  EXPECT_GT(series[0].times_us.size(), 20u);
}

TEST(Sampler, KeepsEverySampleOutliersIncluded) {
  Script script;
  ScriptedStopwatch spiky(script, 'a', {10, 10, 10, 10, 1e5});
  cli::Sampling sampling;
  sampling.samples_max = 10;
  const auto series = sample({&spiky}, sampling, script);
  EXPECT_EQ(series[0].times_us, (std::vector<double>{10, 10, 10, 10, 1e5, 10, 10, 10, 10, 1e5}));
}

TEST(Sampler, AnInterruptEndsThoseInTheRoundAndKeepsTheRest) {
  Script script;
  script.stop_after = 9;
  ScriptedStopwatch done(script, 'd', {2e6}), running(script, 'r', {100});
  const auto series = sample({&done, &running}, {}, script);
  EXPECT_EQ(series[0].stop, StopReason::kTimeLimit);
  EXPECT_EQ(series[1].stop, StopReason::kInterrupted);
  EXPECT_EQ(series[1].times_us.size(), 6u);
}

TEST(Sampler, AnErrorEndsOneStopwatchAndNotTheOthers) {
  Script script;
  ScriptedStopwatch bad(script, 'b', {10}), good(script, 'g', {10});
  bad.fail_at = 1;
  cli::Sampling sampling;
  sampling.samples_max = 5;
  const auto series = sample({&bad, &good}, sampling, script);
  EXPECT_EQ(series[0].stop, StopReason::kError);
  EXPECT_EQ(series[0].error->message, "scripted fault");
  EXPECT_EQ(series[1].stop, StopReason::kSamples);
  EXPECT_EQ(script.order, "bgbgggg");
}

TEST(Sampler, ATimeThatIsNotPositiveIsAnError) {
  for (const double time_us : {0.0, -3.0, std::numeric_limits<double>::quiet_NaN()}) {
    Script script;
    ScriptedStopwatch broken(script, 'b', {time_us});
    const auto series = sample({&broken}, {}, script);
    EXPECT_EQ(series[0].stop, StopReason::kError);
    EXPECT_TRUE(series[0].times_us.empty());
  }
}

TEST(Sampler, GivesUpOnALaunchThatIsFarLongerThanTheLimit) {
  Script script;
  ScriptedStopwatch glacial(script, 'g', {20e6});
  const auto series = sample({&glacial}, {}, script);
  EXPECT_EQ(series[0].stop, StopReason::kTimeout);
  EXPECT_EQ(series[0].times_us.size(), 2u);  // 40 s are past ten limits of 3 s
}

TEST(Sampler, CountsThrottledSamples) {
  Script script;
  ScriptedStopwatch hot(script, 'h', {10});
  hot.throttled = true;
  cli::Sampling sampling;
  sampling.samples_max = 7;
  EXPECT_EQ(sample({&hot}, sampling, script)[0].throttled, 7);
  ScriptedStopwatch cool(script, 'c', {10});
  cool.throttled = false;
  EXPECT_EQ(sample({&cool}, sampling, script)[0].throttled, 0);
  ScriptedStopwatch blind(script, 'b', {10});
  EXPECT_FALSE(sample({&blind}, sampling, script)[0].throttled.has_value());
}

TEST(Sampler, WarmsUpForTheTimeAskedAndAtLeastOnce) {
  Script script;
  ScriptedStopwatch watch(script, 'w', {1e5});
  EXPECT_TRUE(warm_up(watch, 0, script.world()).has_value());
  EXPECT_EQ(script.order, "w");
  EXPECT_TRUE(warm_up(watch, 0.35, script.world()).has_value());
  EXPECT_EQ(script.order, "wwwww");
  ScriptedStopwatch declared(script, 'd', {1e5});
  declared.timing = kernels::Timing::kDeclared;
  declared.stands_still = true;
  EXPECT_TRUE(warm_up(declared, 0.35, script.world()).has_value());
  EXPECT_EQ(script.order, "wwwwwdddd");
  script.stop = true;
  EXPECT_EQ(warm_up(watch, 1, script.world()).error().kind, base::ErrorKind::kInterrupted);
}

TEST(Stopping, TakesNoDecisionBelowTheLeastNumberOfSamples) {
  EXPECT_FALSE(should_stop({std::vector<double>(2, 14.5e6), 29}, {}).has_value());
  EXPECT_EQ(should_stop({std::vector<double>(2, 15.5e6), 31}, {}), StopReason::kTimeout);
}

TEST(Stopping, TakesTheLeastSamplesHoweverLongTheFlushes) {
  EXPECT_FALSE(should_stop({std::vector<double>(2, 36.0), 100}, {}).has_value());
  EXPECT_EQ(should_stop({std::vector<double>(3, 36.0), 150}, {}), StopReason::kTimeLimit);
}

TEST(Stopping, AnswersTheLargestNumberFirst) {
  cli::Sampling sampling;
  sampling.samples_max = 6;
  EXPECT_EQ(should_stop({std::vector<double>(6, 1.0), 100}, sampling), StopReason::kSamples);
}

TEST(Stopping, NeedsSixSamplesForTheNoiseRule) {
  EXPECT_FALSE(should_stop({std::vector<double>(5, 1.0), 1}, {}).has_value());
  EXPECT_EQ(should_stop({std::vector<double>(6, 1.0), 1}, {}), StopReason::kNoise);
}

TEST(Stopping, DoesNotWaitForAnIntervalThatIsOutOfReach) {
  EXPECT_EQ(should_stop({std::vector<double>(3, 6e5), 1.8}, {}), StopReason::kTimeLimit);  // six would take 3.6 s
  EXPECT_FALSE(should_stop({std::vector<double>(3, 4e5), 1.2}, {}).has_value());
}

TEST(Stopping, HoldsTheHalfWidthAgainstTheBound) {
  // Of 99, 99, 100, 100, 101, 101 the extremes bound the median: half a width of 1 over 100.
  const std::vector<double> values{99, 101, 100, 99, 101, 100};
  cli::Sampling sampling;
  sampling.noise_max_pct = 1.0;
  EXPECT_EQ(should_stop({values, 1}, sampling), StopReason::kNoise);
  sampling.noise_max_pct = 0.99;
  EXPECT_FALSE(should_stop({values, 1}, sampling).has_value());
}

TEST(Stopping, ProjectsWithTheSquareOfTheWidth) {
  EXPECT_DOUBLE_EQ(projected_samples(10, 0.04, 0.01), 160);
  EXPECT_DOUBLE_EQ(projected_samples(7, 0.01, 0.01), 7);
}

/// Two low, two high and seven times 100 between them.
std::vector<double> eleven(double low, double high) {
  return {low, high, 100, 100, 100, low, high, 100, 100, 100, 100};
}

TEST(Stopping, ProjectsNothingFromAnIntervalThatOneSampleCanWiden) {
  const std::vector<double> disturbed{100, 100, 300, 100, 100, 100};  // half a width of 100 % from one sample
  EXPECT_FALSE(should_stop({disturbed, 1.6}, {}).has_value());        // 11 samples will fit: the outlier can drop out
  EXPECT_EQ(should_stop({disturbed, 1.7}, {}), StopReason::kOutOfReach);  // 10.6 will
  const std::vector<double> calm(6, 100.0);
  EXPECT_EQ(should_stop({calm, 1.7}, {}), StopReason::kNoise);
}

TEST(Stopping, GivesUpOnceAThirdOfTheWidthWouldNotBeEnough) {
  // Of eleven samples the second and the tenth bound the median, here 5 % either side of 100: a third of that, 1.67 %,
  // comes down to 1 % with 11 * 1.67^2 = 30.6 samples. In a limit of 3 s that many fit up to a pace of 11 in 1.08 s.
  const std::vector<double> values = eleven(95, 105);
  EXPECT_FALSE(should_stop({values, 1.07}, {}).has_value());
  EXPECT_EQ(should_stop({values, 1.09}, {}), StopReason::kOutOfReach);
  cli::Sampling coarse;
  coarse.noise_max_pct = 2;
  EXPECT_FALSE(should_stop({values, 1.09}, coarse).has_value());
}

TEST(Stopping, GivesUpNeverBeforeAThirdOfTheLimitTheLeastTimeAndTheLeastNumber) {
  const std::vector<double> values = eleven(50, 150);  // hopeless: half a width of 50 %
  cli::Sampling sampling;
  EXPECT_FALSE(should_stop({values, 0.99}, sampling).has_value());
  EXPECT_EQ(should_stop({values, 1.01}, sampling), StopReason::kOutOfReach);
  sampling.time_min_s = 2;
  EXPECT_FALSE(should_stop({values, 1.99}, sampling).has_value());
  EXPECT_EQ(should_stop({values, 2.01}, sampling), StopReason::kOutOfReach);
  sampling.samples_min = 12;
  EXPECT_FALSE(should_stop({values, 2.01}, sampling).has_value());
  const std::vector<double> five(values.begin(), values.begin() + 5);
  EXPECT_FALSE(should_stop({five, 1.01}, {}).has_value());  // no interval yet: nothing to project from
}

TEST(Stopping, GoesOnWhereverThePlainProjectionStillReachesTheBound) {
  for (double half_width = 1.1; half_width < 40; half_width *= 1.3) {
    const std::vector<double> values = eleven(100 - half_width, 100 + half_width);
    for (double wall_s = 0.05; wall_s < 3; wall_s += 0.05) {
      const bool reachable = projected_samples(11, half_width, 1) <= 11 / wall_s * 3;
      if (!reachable) continue;
      EXPECT_FALSE(should_stop({values, wall_s}, {}).has_value()) << half_width << " % after " << wall_s << " s";
    }
  }
}

TEST(Stopping, IsLookedAtAgainSoonHoweverLargeTheSample) {
  for (int n = 65; n < 10000; n += 997) {
    bool stopped = false;
    for (int more = 0; more <= n / 8 && !stopped; ++more) {
      stopped = should_stop({std::vector<double>(static_cast<std::size_t>(n + more), 1.0), 1}, {}).has_value();
    }
    EXPECT_TRUE(stopped) << n;
  }
}

}  // namespace
}  // namespace attnbench::measure
