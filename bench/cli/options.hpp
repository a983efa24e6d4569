// Everything a user can ask for, as plain values. Every default of the program lives here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli/compare_options.hpp"
#include "bench/cli/fsdp_options.hpp"
#include "kernels/device/device.hpp"
#include "kernels/problem.hpp"

namespace attnbench::cli {

/// `--kernels flash:highway` is {flash, highway}; without a colon any variant.
struct KernelChoice {
  std::string name;
  std::string variant;
  bool operator==(const KernelChoice&) const = default;
};

/// One `--exclude` rule: a point that matches every term is left out, e.g. kernel=naive,seq_len=16384.
struct ExcludeRule {
  struct Term {
    std::string axis;
    std::string value;
  };
  std::vector<Term> terms;
};

/// Dtypes of a sweep without --dtype: a processor's kernels compute in fp32 whatever comes in.
inline std::vector<kernels::Dtype> sweep_dtypes(kernels::DeviceKind kind) {
  if (kind == kernels::DeviceKind::kCuda) return {kernels::Dtype::kFp32, kernels::Dtype::kBf16};
  return {kernels::Dtype::kFp32};
}

/// Dtypes of verify without --dtype.
inline std::vector<kernels::Dtype> verify_dtypes() {
  return {kernels::Dtype::kFp32, kernels::Dtype::kBf16, kernels::Dtype::kFp16};
}

/// Kernels of the mock device without --kernels: its others fail, or wait, on purpose, for those who name them.
inline constexpr std::array<std::string_view, 3> kMockKernels{"naive", "blas", "flash"};

/// Without --kernels a device's kernel takes part.
inline bool runs_unnamed(kernels::DeviceKind kind, std::string_view kernel) {
  if (kind != kernels::DeviceKind::kMock) return true;
  for (const std::string_view name : kMockKernels) {
    if (name == kernel) return true;
  }
  return false;
}

/// Where a sweep without --out makes its folder, named by the time.
inline constexpr const char* kOutRoot = "attnbench-out";

/// What rows are compared with, in every verb that prints speed-ups.
inline constexpr const char* kBaseline = "naive";

/// The axes of a sweep; the plan is their product, except for zipped ones. Empty optional: chosen for the device.
struct Axes {
  std::vector<std::int64_t> d_model{16, 32, 64};
  std::vector<std::int64_t> seq_len{256, 1024, 4096};
  std::vector<std::int64_t> seq_len_k;  // empty: equal to seq_len
  std::vector<std::int64_t> batch{8};
  std::vector<std::int64_t> heads{1};
  std::vector<std::int64_t> kv_heads;                // empty: equal to heads
  std::optional<std::vector<kernels::Dtype>> dtype;  // empty: sweep_dtypes of the device
  std::vector<bool> causal{true};
  std::vector<std::int64_t> window{-1};  // keys to the left; -1 none
  std::optional<double> scale;           // 1 / sqrt(head_dim)
  std::vector<kernels::Pass> pass{kernels::Pass::kFwd, kernels::Pass::kBwd};
  std::vector<KernelChoice> kernels;  // empty: all that runs_unnamed on the device
  std::vector<int> threads;           // empty: every processor this process may use
  std::vector<std::vector<std::string>> zip;
  std::vector<ExcludeRule> exclude;
};

/// What --thermal sustained keeps the device busy for before a row is sampled.
inline constexpr double kSustainedS = 5;

/// Clocks that a kind of device has, beside auto.
inline std::vector<kernels::Timing> timings_of(kernels::DeviceKind kind) {
  using kernels::Timing;
  if (kind == kernels::DeviceKind::kCpu) return {Timing::kWall};
  if (kind == kernels::DeviceKind::kCuda) return {Timing::kEvents, Timing::kGraph};
  return {Timing::kDeclared};
}

enum class Color : std::uint8_t { kAuto, kAlways, kNever };

/// `--slow-down flash:10%`: every launch of the kernel takes that much longer, on purpose, to see a gate trip.
struct SlowDown {
  KernelChoice kernel;
  double percent = 0;
};

/// How samples are taken and when to stop; units in the names.
struct Sampling {
  std::vector<kernels::CacheState> cache{kernels::CacheState::kCold};
  kernels::Timing timing = kernels::Timing::kAuto;
  int samples_min = 3;
  int samples_max = 10000;
  double time_min_s = 0.2;
  double time_limit_s = 3.0;   // per row; at least samples_min samples are taken all the same
  double noise_max_pct = 1.0;  // stop once the half width of the median's 95 % interval is below this share of it
  bool deterministic = false;
  bool sustained = false;  // --thermal sustained
  std::vector<SlowDown> slow_downs;
};

/// `--emit junit=r.xml`: a format and its file.
struct EmitTarget {
  std::string format;
  std::string path;
  bool operator==(const EmitTarget&) const = default;
};

/// Where results go. "-" is standard output.
struct Outputs {
  std::string out_dir;  // empty: a folder in kOutRoot named by the time (sweep), or nothing is kept (verify)
  std::string csv, json, md, gbench_json;
  std::vector<EmitTarget> emit;
  bool quiet = false;
  Color color = Color::kAuto;

  bool any() const { return !emit.empty() || !csv.empty() || !json.empty() || !md.empty() || !gbench_json.empty(); }

  /// One of the writers owns standard output: what is for people goes to standard error then.
  bool owns_stdout() const {
    for (const EmitTarget& target : emit) {
      if (target.path == "-") return true;
    }
    return csv == "-" || json == "-" || md == "-" || gbench_json == "-";
  }
};

struct SweepOptions {
  Axes axes;
  Sampling sampling;
  Outputs outputs;
  std::vector<std::string> devices{"auto"};  // auto, cpu, cuda, cuda:0, mock
  std::uint64_t seed = 1;
  std::string baseline = kBaseline;
  bool dry_run = false;
  bool try_oom = false;
  bool resume = false;     // continue in out_dir
  double run_limit_s = 0;  // whole run; 0: none; exit 124 when reached
  std::string command;     // the command line as typed, for the rows
  FsdpOptions fsdp;        // of that verb alone
  Comparing comparing;     // of compare alone
  int noise_launches = 3;  // of noise alone, as is
  std::string noise_file = "noise.json";
};

struct ReportOptions {
  std::string input;  // a run directory or a rows.jsonl
  Outputs outputs;
  std::string baseline = kBaseline;
};

struct VerifyOptions {
  std::string directory;
  std::vector<KernelChoice> kernels;
  std::vector<std::string> devices{"auto"};
  std::optional<std::vector<kernels::Dtype>> dtype;
  Outputs outputs;
  std::string command;
};

}  // namespace attnbench::cli
