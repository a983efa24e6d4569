// One point of a run: kernels that share their inputs, checked, then sampled in turn.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure/inputs.hpp"
#include "bench/measure/sampler.hpp"
#include "bench/measure/verify.hpp"
#include "bench/measure/workload.hpp"
#include "bench/plan/plan.hpp"
#include "bench/run/runner.hpp"
#include "kernels/device/device.hpp"
#include "kernels/device/thread_pool.hpp"
#include "reports/row.hpp"

namespace attnbench::run {

/// The kernel that the case names. Error of the program when the candidate does not have it.
const kernels::KernelInfo* find_kernel(const plan::Candidate& candidate, const plan::Case& c);

/// A case on its way to a row; without a stopwatch the row is finished already.
struct Lane {
  const plan::Case* plan_case = nullptr;
  reports::Row row;
  std::unique_ptr<measure::Workload> workload;
  std::unique_ptr<kernels::Stopwatch> stopwatch;  // last: goes before what it launches
};

class PointRun {
 public:
  PointRun(kernels::Device& device, kernels::ThreadPool& pool, const RunSettings& settings,
           const std::function<bool()>& stop, std::function<void(const plan::Case&)> starting)
      : device_(device), pool_(pool), settings_(settings), stop_(stop), starting_(std::move(starting)) {}

  /// A row for each case that was started, in order. Cases that a stop kept from starting have none.
  std::vector<reports::Row> run(const std::vector<const plan::Case*>& cases, const plan::Candidate& candidate,
                                std::optional<double> peak_gflops);

  /// One case alone, launched once and checked, its stopwatch ready: for those who take the samples themselves.
  Lane open(const plan::Case& c, const plan::Candidate& candidate);

  bool device_lost() const { return !lost_at_.empty(); }
  const std::string& lost_at() const { return lost_at_; }

 private:
  void run_group(const std::vector<const plan::Case*>& cases, const plan::Candidate& candidate);
  Lane prepare(const plan::Case& c, const plan::Candidate& candidate);
  base::Result<void> check(Lane& lane, const kernels::KernelInfo& kernel);
  void sample(std::vector<Lane>& lanes);
  bool warm_up(Lane& lane, const measure::Surroundings& world);
  void settle(Lane& lane, const measure::Series& series);
  void fail(Lane& lane, const base::Error& error);
  bool fit_together(const std::vector<const plan::Case*>& cases) const;
  std::string stop_reason() const;

  kernels::Device& device_;
  kernels::ThreadPool& pool_;
  const RunSettings& settings_;
  const std::function<bool()>& stop_;
  std::function<void(const plan::Case&)> starting_;
  std::optional<double> peak_gflops_;
  std::optional<measure::Inputs> inputs_;
  std::optional<measure::Reference> reference_;  // made for the first kernel that gets as far
  std::vector<reports::Row> rows_;
  std::string lost_at_;
};

}  // namespace attnbench::run
