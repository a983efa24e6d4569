// The plan of a sweep: ordered cases, grouped into points, each with what is predicted of it. Pure values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/cli/options.hpp"
#include "kernels/device/device.hpp"
#include "kernels/kernel.hpp"
#include "kernels/problem.hpp"

namespace attnbench::plan {

/// One row to be: a kernel on a problem on a device.
struct Case {
  kernels::Problem problem;
  kernels::Pass pass = kernels::Pass::kFwd;
  std::int64_t d_model = 0;  // heads * head_dim
  std::string kernel;        // naive, blas, flash
  std::string variant;       // the one that will run
  std::string device;        // id of a DeviceFacts
  int threads = 0;           // 0 where the device has no such notion
  kernels::CacheState cache = kernels::CacheState::kCold;
  kernels::Timing timing = kernels::Timing::kAuto;
  bool deterministic = false;
  std::uint64_t seed = 0;  // of this case's inputs; equal for all kernels of a point
  std::uint64_t predicted_bytes = 0;
  std::uint64_t harness_bytes = 0;  // that the harness holds beside it, of the same memory
  double predicted_time_us = 0;     // of a launch; like the next two an order of magnitude, for ETA and dry run.
                                    // 0: refused before anything was predicted
  double predicted_flush_us = 0;    // before each cold sample
  double predicted_check_us = 0;    // inputs, oracle and comparison; the oracle's part is shared by the point
  std::string key;                  // stable name, unique in a plan; equal in two runs of the same case
  std::string refused_status;       // empty: to be run; else unsupported or oom_predicted
  std::string refused_reason;
};

/// Cases that differ in the kernel alone: they share inputs and are sampled in turn.
struct Point {
  std::vector<Case> cases;
};

struct Plan {
  std::vector<Point> points;
};

/// More cases than anybody runs: at three seconds each they take a month, and their plan half a gigabyte.
inline constexpr double kMostCases = 1e6;

/// A device and what can run on it.
struct Candidate {
  kernels::DeviceFacts facts;
  std::span<const kernels::KernelInfo* const> kernels;
};

/// Axes x kernels x devices, in a fixed order, holes and refusals marked with their reason.
///
/// Errors  kUsage: an axis value that fits nothing (d_model not a multiple of heads, zip of unequal lengths), a kernel
///         or a clock that no device has (near matches named), an empty selection, more than kMostCases before
///         --exclude
base::Result<Plan> make_plan(const cli::SweepOptions& options, std::span<const Candidate> candidates);

}  // namespace attnbench::plan
