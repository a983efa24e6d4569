// Axes x kernels x devices: an odometer over groups of axes, and what becomes of each of its positions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "bench/base/rng.hpp"
#include "bench/base/saturate.hpp"
#include "bench/base/units.hpp"
#include "bench/plan/plan.hpp"
#include "bench/plan/predict.hpp"
#include "bench/plan/select.hpp"
#include "kernels/work.hpp"

namespace attnbench::plan {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using cli::SweepOptions;
using kernels::DeviceKind;
using kernels::KernelInfo;
using kernels::Problem;

/// The axes in the order of the odometer: the last turns fastest.
enum AxisIndex : std::size_t {
  kDtype,
  kCausal,
  kBatch,
  kHeads,
  kKvHeads,
  kDModel,
  kWindow,
  kSeqLen,
  kSeqLenK,
  kPass,
  kCache,
  kThreads,
  kAxisCount
};
constexpr std::array<std::string_view, kAxisCount> kNames{"dtype",     "causal",  "batch",  "heads",
                                                          "kv_heads",  "d_model", "window", "seq_len",
                                                          "seq_len_k", "pass",    "cache",  "threads"};

using Position = std::array<std::size_t, kAxisCount>;

/// Axis values with the defaults of one device filled in. Empty seq_len_k and kv_heads follow their partner.
struct Resolved {
  const SweepOptions& options;
  const Candidate& candidate;
  std::vector<kernels::Dtype> dtype;
  std::vector<int> threads;

  std::array<std::size_t, kAxisCount> sizes() const {
    const cli::Axes& axes = options.axes;
    std::array<std::size_t, kAxisCount> result{};
    result[kDtype] = dtype.size();
    result[kCausal] = axes.causal.size();
    result[kBatch] = axes.batch.size();
    result[kHeads] = axes.heads.size();
    result[kKvHeads] = axes.kv_heads.size();
    result[kDModel] = axes.d_model.size();
    result[kWindow] = axes.window.size();
    result[kSeqLen] = axes.seq_len.size();
    result[kSeqLenK] = axes.seq_len_k.size();
    result[kPass] = axes.pass.size();
    result[kCache] = options.sampling.cache.size();
    result[kThreads] = threads.size();
    return result;
  }
};

Resolved resolve(const SweepOptions& options, const Candidate& candidate) {
  Resolved resolved{options, candidate, options.axes.dtype.value_or(cli::sweep_dtypes(candidate.facts.kind)), {0}};
  if (candidate.facts.kind == DeviceKind::kCpu) {
    resolved.threads = options.axes.threads;
    if (resolved.threads.empty()) resolved.threads = {std::max(1, candidate.facts.cores)};
  }
  return resolved;
}

/// Axes that move together; every axis is in exactly one group.
using Groups = std::vector<std::vector<std::size_t>>;

Result<Groups> groups_of(const Resolved& resolved) {
  const std::array<std::size_t, kAxisCount> sizes = resolved.sizes();
  std::array<const std::vector<std::string>*, kAxisCount> zipped{};
  for (const std::vector<std::string>& names : resolved.options.axes.zip) {
    for (const std::string& name : names) {
      const auto axis = static_cast<std::size_t>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
      ATTNBENCH_ENSURE(axis < kAxisCount, "zip names are checked by the parser");
      zipped[axis] = &names;
    }
  }
  Groups groups;
  std::array<std::size_t, kAxisCount> group_at{};
  for (std::size_t axis = 0; axis < kAxisCount; ++axis) {
    std::size_t partner = axis;
    if (zipped[axis] != nullptr) {
      partner = static_cast<std::size_t>(std::find(zipped.begin(), zipped.end(), zipped[axis]) - zipped.begin());
    }
    group_at[axis] = partner < axis ? group_at[partner] : groups.size();
    if (partner == axis) groups.emplace_back();
    groups[group_at[axis]].push_back(axis);
    if (sizes[axis] != sizes[partner]) {
      return fail(ErrorKind::kUsage, fmt::format("--zip {}: {} has {} values and {} has {}; give them equally many",
                                                 fmt::join(*zipped[axis], ","), kNames[partner], sizes[partner],
                                                 kNames[axis], sizes[axis]));
    }
  }
  return groups;
}

/// One position of the odometer as a case without a kernel.
Case case_at(const Resolved& resolved, const Position& at) {
  const cli::Axes& axes = resolved.options.axes;
  Case point;
  Problem& p = point.problem;
  p.dtype = resolved.dtype[at[kDtype]];
  p.causal = axes.causal[at[kCausal]];
  p.batch = axes.batch[at[kBatch]];
  p.heads = axes.heads[at[kHeads]];
  p.kv_heads = axes.kv_heads.empty() ? p.heads : axes.kv_heads[at[kKvHeads]];
  p.window_left = axes.window[at[kWindow]];
  p.seq_q = axes.seq_len[at[kSeqLen]];
  p.seq_k = axes.seq_len_k.empty() ? p.seq_q : axes.seq_len_k[at[kSeqLenK]];
  point.d_model = axes.d_model[at[kDModel]];
  point.pass = axes.pass[at[kPass]];
  point.cache = resolved.options.sampling.cache[at[kCache]];
  point.threads = resolved.threads[at[kThreads]];
  point.timing = resolved.options.sampling.timing;
  point.deterministic = resolved.options.sampling.deterministic;
  point.device = resolved.candidate.facts.id;
  return point;
}

/// head_dim and scale, which follow from the axes. Error: heads that do not divide.
Result<void> complete(Case& point, const SweepOptions& options) {
  Problem& p = point.problem;
  if (point.d_model % p.heads != 0) {
    return fail(ErrorKind::kUsage,
                fmt::format("--d-model {0} is not a multiple of --heads {1}; try --d-model {2}, --zip d_model,heads or "
                            "--exclude d_model={0},heads={1}",
                            point.d_model, p.heads, (point.d_model / p.heads + 1) * p.heads));
  }
  if (p.heads % p.kv_heads != 0) {
    return fail(ErrorKind::kUsage,
                fmt::format("--heads {0} is not a multiple of --kv-heads {1}; try --kv-heads {2}, --zip heads,kv_heads "
                            "or --exclude heads={0},kv_heads={1}",
                            p.heads, p.kv_heads, p.heads % 2 == 0 ? p.heads / 2 : 1));
  }
  p.head_dim = point.d_model / p.heads;
  p.scale = options.axes.scale ? static_cast<float>(*options.axes.scale) : kernels::default_scale(p.head_dim);
  return {};
}

/// Equal for all kernels, passes, caches and devices that compute on the same inputs.
std::uint64_t seed_of(const Problem& p, std::uint64_t seed) {
  std::uint64_t state = base::mix64(seed);
  for (const std::int64_t part : {p.batch, p.heads, p.kv_heads, p.seq_q, p.seq_k, p.head_dim,
                                  static_cast<std::int64_t>(p.dtype), std::int64_t{p.causal}, p.window_left}) {
    state = base::mix64(state ^ static_cast<std::uint64_t>(part));
  }
  return state;
}

/// Kernel, pass, dtype, mask, shape, cache, threads, device word: nothing of the machine.
std::string key_of(const Case& c, const std::string& kernel, const SweepOptions& options) {
  const Problem& p = c.problem;
  std::string key =
      fmt::format("{}/{}/{}/{}/b{}_h{}_kv{}_d{}_s{}_sk{}", kernel, to_string(c.pass), to_string(p.dtype),
                  p.causal ? "causal" : "full", p.batch, p.heads, p.kv_heads, p.head_dim, p.seq_q, p.seq_k);
  if (p.window_left >= 0) key += fmt::format("_w{}", p.window_left);
  if (options.axes.scale) key += fmt::format("_scale{}", *options.axes.scale);
  key += fmt::format("/{}", to_string(c.cache));
  if (c.threads > 0) key += fmt::format("/t{}", c.threads);
  if (c.deterministic) key += "/deterministic";
  return key + "/" + c.device;
}

/// Plans one device; its points go to the end of the plan.
class DevicePlanner {
 public:
  DevicePlanner(const SweepOptions& options, const Candidate& candidate)
      : options_(options), resolved_(resolve(options, candidate)), choices_(choices_on(options, candidate)) {}

  Result<void> run(Plan& plan) {
    const auto groups = groups_of(resolved_);
    if (!groups) return tl::unexpected(groups.error());
    if (auto ok = check_size(*groups); !ok) return ok;
    return turn(*groups, 0, {}, plan);
  }

 private:
  /// Cases of this device before rules exclude some.
  Result<void> check_size(const Groups& groups) const {
    const std::array<std::size_t, kAxisCount> sizes = resolved_.sizes();
    double cases = static_cast<double>(choices_.size());
    std::string factors = fmt::format("{} kernels", choices_.size());
    for (const std::vector<std::size_t>& group : groups) {
      const std::size_t size = std::max<std::size_t>(1, sizes[group.front()]);
      cases *= static_cast<double>(size);
      if (size > 1) factors += fmt::format(" x {} {}", size, kNames[group.front()]);
    }
    if (cases <= kMostCases) return {};
    return fail(ErrorKind::kUsage, fmt::format("the plan has {:.0f} cases on {} ({}), more than {:.0f}; give an axis a "
                                               "step (1k:64k:1k, 1k:64k:x2), pair axes with --zip, or split the sweep",
                                               cases, resolved_.candidate.facts.id, factors, kMostCases));
  }

  Result<void> turn(const Groups& groups, std::size_t group, Position at, Plan& plan) {
    if (group == groups.size()) return add_point(at, plan);
    // An empty axis follows its partner and has one position.
    const std::size_t size = std::max<std::size_t>(1, resolved_.sizes()[groups[group].front()]);
    for (std::size_t i = 0; i < size; ++i) {
      for (const std::size_t axis : groups[group]) at[axis] = i;
      if (auto ok = turn(groups, group + 1, at, plan); !ok) return ok;
    }
    return {};
  }

  Result<void> add_point(const Position& at, Plan& plan) {
    const Case bare = case_at(resolved_, at);
    Point point;
    point.cases.reserve(choices_.size());
    std::unordered_set<const KernelInfo*> taken;
    for (const cli::KernelChoice& choice : choices_) {
      Case c = bare;
      c.kernel = choice.name;
      // Rules may exclude a shape that cannot be completed, so they are asked first, and again with the variant.
      if (excluded(c, options_.axes.exclude)) continue;
      if (auto ok = complete(c, options_); !ok) return ok;
      const KernelInfo& kernel = pick(c, choice);
      c.variant = kernel.variant;
      if (excluded(c, options_.axes.exclude) || !taken.insert(&kernel).second) continue;
      fill(c, kernel, choice);
      // Zipped axes can come back to the same problem; other positions of the odometer all differ.
      if (options_.axes.zip.empty() || keys_.insert(c.key).second) point.cases.push_back(std::move(c));
    }
    if (!point.cases.empty()) plan.points.push_back(std::move(point));
    return {};
  }

  kernels::Target target(const Case& c) const {
    return {&resolved_.candidate.facts, std::max(1, c.threads), c.deterministic};
  }

  /// The first kernel of that name that takes the problem; the first of them all when none does, to say why not.
  const KernelInfo& pick(const Case& c, const cli::KernelChoice& choice) const {
    const KernelInfo* first = nullptr;
    for (const KernelInfo* kernel : resolved_.candidate.kernels) {
      if (!matches(*kernel, choice)) continue;
      if (first == nullptr) first = kernel;
      if (!kernels::is_countable(c.problem, kernel->materialises)) continue;  // nothing is asked about such a problem
      if (!kernel->supports(c.problem, c.pass, target(c))) return *kernel;
    }
    ATTNBENCH_ENSURE(first != nullptr, "choices are of kernels that the device has");
    return *first;
  }

  void fill(Case& c, const KernelInfo& kernel, const cli::KernelChoice& choice) const {
    const std::string name = choice.variant.empty() ? choice.name : choice.name + ":" + choice.variant;
    c.key = key_of(c, name, options_);
    c.seed = seed_of(c.problem, options_.seed);
    if (!kernels::is_countable(c.problem, kernel.materialises)) {
      c.refused_status = "oom_predicted";
      c.refused_reason = size_reason(kernel, c);
      return;
    }
    if (const auto reason = kernel.supports(c.problem, c.pass, target(c))) {
      c.refused_status = "unsupported";
      c.refused_reason = *reason;
      return;
    }
    c.predicted_bytes = predicted_bytes(kernel, c.problem, c.pass, target(c));
    c.harness_bytes = harness_bytes(resolved_.candidate.facts, c.problem, c.pass, c.cache);
    c.predicted_time_us = predicted_time_us(kernel, c.problem, c.pass, target(c));
    c.predicted_flush_us = flush_time_us(resolved_.candidate.facts, c.cache);
    c.predicted_check_us = check_time_us(resolved_.candidate.facts, c.problem, c.pass);
    const auto available = available_bytes(resolved_.candidate.facts);
    if (options_.try_oom || !available || base::saturating_sum({c.predicted_bytes, c.harness_bytes}) <= *available)
      return;
    c.refused_status = "oom_predicted";
    c.refused_reason = oom_reason(kernel, c);
  }

  std::uint64_t needed_bytes(const KernelInfo& kernel, const Case& c) const {
    return base::saturating_sum({predicted_bytes(kernel, c.problem, c.pass, target(c)),
                                 harness_bytes(resolved_.candidate.facts, c.problem, c.pass, c.cache)});
  }

  bool fits(const KernelInfo& kernel, const Case& c) const {
    if (!kernels::is_countable(c.problem, kernel.materialises)) return false;
    const auto available = available_bytes(resolved_.candidate.facts);
    return !available || needed_bytes(kernel, c) <= *available;
  }

  std::string size_reason(const KernelInfo& kernel, const Case& c) const {
    return fmt::format(
        "--seq-len {}, --batch {}, --heads {} takes {}, more than any machine has, so that it is not tried "
        "with --try-oom either; try {}",
        base::format_count(c.problem.seq_q), base::format_count(c.problem.batch), base::format_count(c.problem.heads),
        base::format_bytes(nominal_bytes(kernel, c.problem, c.pass)), advice(kernel, c));
  }

  std::string oom_reason(const KernelInfo& kernel, const Case& c) const {
    const kernels::DeviceFacts& facts = resolved_.candidate.facts;
    const auto total = static_cast<double>(needed_bytes(kernel, c));
    const auto scratch = static_cast<double>(c.predicted_bytes - kernels::tensor_bytes(c.problem, c.pass));
    return fmt::format("--seq-len {} needs {}, {} of it {}, on {} ({} free); try {}",
                       base::format_count(c.problem.seq_q), base::format_bytes(total), base::format_bytes(scratch),
                       kernel.materialises ? "scores" : "scratch", facts.id,
                       base::format_bytes(static_cast<double>(facts.memory_free_bytes)), advice(kernel, c));
  }

  /// A kernel that would fit, and the length that this one would take.
  std::string advice(const KernelInfo& kernel, const Case& c) const {
    std::string text;
    for (const KernelInfo* other : resolved_.candidate.kernels) {
      if (other->name == kernel.name || !fits(*other, c) || other->supports(c.problem, c.pass, target(c))) continue;
      text = fmt::format("--kernels {}", other->name);
      break;
    }
    Case smaller = c;
    // Halving a round number keeps it one.
    while (smaller.problem.seq_q > 1 && !fits(kernel, smaller)) {
      smaller.problem.seq_q /= 2;
      smaller.problem.seq_k = std::max<std::int64_t>(1, smaller.problem.seq_k / 2);
    }
    if (fits(kernel, smaller)) {
      text += (text.empty() ? "" : " or ") + fmt::format("--seq-len {}", base::format_count(smaller.problem.seq_q));
    }
    return text.empty() ? "a smaller --batch" : text;
  }

  const SweepOptions& options_;
  Resolved resolved_;
  std::vector<cli::KernelChoice> choices_;
  std::unordered_set<std::string> keys_;
};

}  // namespace

Result<Plan> make_plan(const SweepOptions& options, std::span<const Candidate> candidates) {
  if (candidates.empty()) {
    return fail(ErrorKind::kUsage, "the selection is empty: no device; see attnbench list devices");
  }
  if (auto ok = check_kernels(options, candidates); !ok) return tl::unexpected(ok.error());
  if (auto ok = check_timing(options, candidates); !ok) return tl::unexpected(ok.error());
  Plan plan;
  for (const Candidate& candidate : candidates) {
    if (auto ok = DevicePlanner(options, candidate).run(plan); !ok) return tl::unexpected(ok.error());
  }
  if (plan.points.empty()) {
    return fail(ErrorKind::kUsage, "the selection is empty: --exclude leaves no point; drop a rule or widen an axis");
  }
  return plan;
}

}  // namespace attnbench::plan
