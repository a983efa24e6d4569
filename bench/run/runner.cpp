// Walks the plan, opening devices and handing rows to the sinks.
#include "bench/run/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "bench/run/point.hpp"
#include "kernels/device/thread_pool.hpp"

namespace attnbench::run {
namespace {

using base::Result;
namespace status = reports::status;

/// Runs the plan point by point; holds the device that is open.
class Runner {
 public:
  Runner(const plan::Plan& plan, std::span<const plan::Candidate> candidates, const RunSettings& settings,
         std::span<RowSink* const> sinks, const ProgressCallback& progress)
      : plan_(plan), candidates_(candidates), settings_(settings), sinks_(sinks), progress_(progress) {
    for (const plan::Point& point : plan.points) {
      for (const plan::Case& c : point.cases) {
        if (!settings.finished.contains(c.key)) ++state_.total;
      }
    }
  }

  RunSummary run() {
    const double begin = now_s();
    const double deadline = settings_.run_limit_s > 0 ? begin + settings_.run_limit_s : HUGE_VAL;
    stop_ = [this, deadline] {
      if (settings_.interrupted && settings_.interrupted()) summary_.interrupted = true;
      if (now_s() > deadline) summary_.limit_reached = true;
      return summary_.interrupted || summary_.limit_reached;
    };
    for (const plan::Point& point : plan_.points) {
      if (stop_() || summary_.error) break;
      run_point(point);
    }
    return std::move(summary_);
  }

 private:
  static double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  void run_point(const plan::Point& point) {
    std::vector<const plan::Case*> open;
    for (const plan::Case& c : point.cases) {
      if (settings_.finished.contains(c.key)) continue;
      if (c.refused_status.empty()) {
        open.push_back(&c);
      } else {
        reports::Row row = describe(c, facts(c), kernel(c), settings_.provenance);
        finish(row, c.refused_status.c_str(), c.refused_reason);
        emit(std::move(row));
      }
    }
    if (open.empty() || summary_.error || !use_device(*open.front())) return;
    if (lost_.contains(open.front()->device)) {
      for (const plan::Case* c : open) emit_lost(*c);
      return;
    }
    if (open.front()->threads > 0) device_->set_threads(open.front()->threads);
    PointRun run(*device_, pool(), settings_, stop_, [this](const plan::Case& c) {
      state_.current = &c;
      if (progress_) progress_(state_);
    });
    for (reports::Row& row : run.run(open, candidate(*open.front()), peak(*open.front()))) emit(std::move(row));
    if (run.device_lost()) lost_.emplace(open.front()->device, run.lost_at());
  }

  /// Opens the device of the case unless it is the open one.
  bool use_device(const plan::Case& c) {
    if (device_ && device_id_ == c.device) return true;
    device_.reset();
    auto device = settings_.open(c.device);
    if (!device) {
      summary_.error = device.error();
      return false;
    }
    device_ = std::move(*device);
    device_id_ = c.device;
    if (c.cache == kernels::CacheState::kCold && device_->facts().kind == kernels::DeviceKind::kCpu)
      hold_flush_buffer();
    return true;
  }

  /// The buffer comes with the first cold stopwatch and stays: taken before the first row, it is in peak_rss_bytes of
  /// every row or of none. Where it cannot be had, the row that wants it says so.
  void hold_flush_buffer() {
    const auto nothing = [] { return Result<void>{}; };
    static_cast<void>(device_->stopwatch(nothing, {kernels::CacheState::kCold, kernels::Timing::kAuto}));
  }

  const plan::Candidate& candidate(const plan::Case& c) const {
    const auto found = std::find_if(candidates_.begin(), candidates_.end(),
                                    [&](const plan::Candidate& other) { return other.facts.id == c.device; });
    ATTNBENCH_ENSURE(found != candidates_.end(), "every device of a plan is one of the candidates");
    return *found;
  }

  const kernels::DeviceFacts& facts(const plan::Case& c) const { return candidate(c).facts; }

  const kernels::KernelInfo* kernel(const plan::Case& c) const { return find_kernel(candidate(c), c); }

  /// Threads for the oracle and the inputs; asleep while kernels are timed.
  kernels::ThreadPool& pool() {
    if (!pool_) pool_ = std::make_unique<kernels::ThreadPool>(std::max(1u, std::thread::hardware_concurrency()));
    return *pool_;
  }

  std::optional<double> peak(const plan::Case& c) {
    if (!settings_.peak_gflops) return std::nullopt;
    const auto key = std::make_pair(c.device, c.threads);
    const auto known = peaks_.find(key);
    if (known != peaks_.end()) return known->second;
    return peaks_[key] = settings_.peak_gflops(*device_);
  }

  void emit_lost(const plan::Case& c) {
    reports::Row row = describe(c, facts(c), kernel(c), settings_.provenance);
    finish(row, status::kDeviceLost,
           fmt::format("{} was lost at {}; to go on with the rest: {}", c.device, lost_.at(c.device),
                       settings_.resume_command));
    emit(std::move(row));
  }

  void emit(reports::Row row) {
    if (summary_.error) return;
    ++summary_.by_status[row.status];
    for (RowSink* sink : sinks_) {
      if (auto ok = sink->row(row); !ok) {
        summary_.error = ok.error();
        return;
      }
    }
    ++state_.done;
    if (progress_) progress_(state_);
  }

  const plan::Plan& plan_;
  std::span<const plan::Candidate> candidates_;
  const RunSettings& settings_;
  std::span<RowSink* const> sinks_;
  const ProgressCallback& progress_;
  std::function<bool()> stop_;
  RunProgress state_;
  RunSummary summary_;
  std::unique_ptr<kernels::ThreadPool> pool_;
  std::string device_id_;
  std::unique_ptr<kernels::Device> device_;
  std::map<std::string, std::string> lost_;  // device, key of the case that lost it
  std::map<std::pair<std::string, int>, std::optional<double>> peaks_;
};

}  // namespace

std::size_t RunSummary::count(const std::string& wanted) const {
  const auto found = by_status.find(wanted);
  return found == by_status.end() ? 0 : found->second;
}

std::size_t RunSummary::failures() const {
  std::size_t rows = 0;
  for (const auto& [word, count] : by_status) rows += reports::status::is_failure(word) ? count : 0;
  return rows;
}

RunSummary run_plan(const plan::Plan& plan, std::span<const plan::Candidate> candidates, const RunSettings& settings,
                    std::span<RowSink* const> sinks, const ProgressCallback& progress) {
  return Runner(plan, candidates, settings, sinks, progress).run();
}

bool is_final(const std::string& word) {
  return word != status::kInterrupted && word != status::kFailed && word != status::kDeviceLost &&
         word != status::kTimeout;
}

}  // namespace attnbench::run
