// Invented devices and kernels whose plans are known.
#pragma once

#include <gmock/gmock.h>

#include <array>
#include <string>
#include <vector>

#include "bench/plan/plan.hpp"

namespace attnbench::plan {

using cli::SweepOptions;
using kernels::DeviceKind;
using kernels::Dtype;
using kernels::Footprint;
using kernels::KernelInfo;
using kernels::Pass;
using kernels::Problem;
using kernels::Target;
using testing::ElementsAre;
using testing::HasSubstr;

inline std::optional<std::string> anything(const Problem&, Pass, const Target&) { return std::nullopt; }
inline std::optional<std::string> only_head_dim_64(const Problem& p, Pass, const Target&) {
  if (p.head_dim == 64) return std::nullopt;
  return "head_dim must be 64";
}
inline Footprint no_scratch(const Problem&, Pass, const Target&) { return {}; }
/// One fp32 score matrix per head to work on, kept for the backward.
inline Footprint scores(const Problem& p, Pass pass, const Target&) {
  const auto bytes = static_cast<std::size_t>(4 * p.batch * p.heads * p.seq_q * p.seq_k);
  return {bytes, pass == Pass::kFwd ? 0 : bytes};
}

inline KernelInfo make(std::string_view name, std::string_view variant, bool materialises, decltype(&anything) supports,
                       decltype(&no_scratch) footprint, DeviceKind device = DeviceKind::kCpu) {
  KernelInfo info;
  info.name = name;
  info.variant = variant;
  info.device = device;
  info.materialises = materialises;
  info.supports = supports;
  info.footprint = footprint;
  info.tolerance = kernels::default_tolerance;
  return info;
}

inline const KernelInfo kNaive = make("naive", "plain", true, anything, scores);
inline const KernelInfo kFast = make("flash", "fast", false, only_head_dim_64, no_scratch);
inline const KernelInfo kWide = make("flash", "wide", false, anything, no_scratch);
inline const KernelInfo kPicky = make("picky", "one", false, only_head_dim_64, no_scratch);
inline const KernelInfo kGpuNaive = make("naive", "gpu", true, anything, scores, DeviceKind::kCuda);
inline const std::array<const KernelInfo*, 4> kCpuKernels{&kNaive, &kFast, &kWide, &kPicky};
inline const std::array<const KernelInfo*, 1> kGpuKernels{&kGpuNaive};

inline Candidate cpu() {
  Candidate candidate;
  candidate.facts.kind = DeviceKind::kCpu;
  candidate.facts.id = "cpu";
  candidate.facts.name = "a processor of this very machine";
  candidate.facts.cores = 2;
  candidate.facts.memory_free_bytes = std::uint64_t{1} << 30;
  candidate.facts.last_level_cache_bytes = std::uint64_t{1} << 20;
  candidate.kernels = kCpuKernels;
  return candidate;
}

inline Candidate gpu() {
  Candidate candidate = cpu();
  candidate.facts.kind = DeviceKind::kCuda;
  candidate.facts.id = "cuda:0";
  candidate.kernels = kGpuKernels;
  return candidate;
}

inline std::vector<Case> cases_of(const Plan& plan) {
  std::vector<Case> cases;
  for (const Point& point : plan.points) cases.insert(cases.end(), point.cases.begin(), point.cases.end());
  return cases;
}

inline Plan plan_of(const SweepOptions& options, const std::vector<Candidate>& candidates = {cpu()}) {
  auto plan = make_plan(options, candidates);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : Plan{};
}

inline std::string message_of(const SweepOptions& options, const std::vector<Candidate>& candidates = {cpu()}) {
  const auto plan = make_plan(options, candidates);
  EXPECT_FALSE(plan);
  if (plan) return "";
  EXPECT_EQ(plan.error().kind, base::ErrorKind::kUsage);
  return plan.error().message;
}

}  // namespace attnbench::plan
