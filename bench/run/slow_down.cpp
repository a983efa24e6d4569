// Delays by a share of the launch's own time.
#include "bench/run/slow_down.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "bench/base/suggest.hpp"

namespace attnbench::run {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

bool names(const cli::SlowDown& rule, std::string_view kernel, std::string_view variant) {
  return rule.kernel.name == kernel && (rule.kernel.variant.empty() || rule.kernel.variant == variant);
}

class SlowedStopwatch final : public kernels::Stopwatch {
 public:
  SlowedStopwatch(std::unique_ptr<kernels::Stopwatch> inner, double percent)
      : inner_(std::move(inner)), factor_(1 + percent / 100) {}

  Result<kernels::Sample> take() override {
    auto sample = inner_->take();
    if (sample) sample->time_us *= factor_;
    return sample;
  }
  kernels::StopwatchInfo info() const override { return inner_->info(); }

 private:
  std::unique_ptr<kernels::Stopwatch> inner_;
  double factor_;
};

}  // namespace

double slow_down_pct(const std::vector<cli::SlowDown>& rules, std::string_view kernel, std::string_view variant) {
  double percent = 0;
  for (const cli::SlowDown& rule : rules) {
    if (names(rule, kernel, variant)) percent = rule.percent;
  }
  return percent;
}

Result<void> check_slow_downs(const std::vector<cli::SlowDown>& rules, const plan::Plan& plan) {
  for (const cli::SlowDown& rule : rules) {
    std::vector<std::string_view> known;
    bool found = false;
    for (const plan::Point& point : plan.points) {
      for (const plan::Case& c : point.cases) {
        if (std::find(known.begin(), known.end(), c.kernel) == known.end()) known.push_back(c.kernel);
        if (!names(rule, c.kernel, c.variant)) continue;
        found = true;
        if (c.timing != kernels::Timing::kEvents && c.timing != kernels::Timing::kGraph) continue;
        return fail(ErrorKind::kUsage,
                    fmt::format("--slow-down {}: the delay is on the host, which the clock of {} does not see; try "
                                "--device cpu",
                                rule.kernel.name, c.device));
      }
    }
    if (found) continue;
    const std::string variant = rule.kernel.variant.empty() ? "" : ":" + rule.kernel.variant;
    return fail(ErrorKind::kUsage, fmt::format("--slow-down: the plan has no kernel \"{}{}\"{}", rule.kernel.name,
                                               variant, base::did_you_mean(rule.kernel.name, known)));
  }
  return {};
}

kernels::Launch slowed(kernels::Launch launch, double percent) {
  return [launch = std::move(launch), percent] {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    auto ok = launch();
    const auto delay = std::chrono::duration<double>(Clock::now() - begin) * (percent / 100);
    for (const Clock::time_point launched = Clock::now(); Clock::now() - launched < delay;) {
    }
    return ok;
  };
}

std::unique_ptr<kernels::Stopwatch> slowed(std::unique_ptr<kernels::Stopwatch> stopwatch, double percent) {
  return std::make_unique<SlowedStopwatch>(std::move(stopwatch), percent);
}

}  // namespace attnbench::run
