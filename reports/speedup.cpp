// How much faster and smaller each kernel is than the baseline kernel on the same point.
#include "reports/speedup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "bench/base/error.hpp"
#include "reports/format.hpp"

namespace attnbench::reports {

namespace {

constexpr std::array<std::string_view, 14> kAxes = {"device",  "dtype",    "batch",   "heads",     "kv_heads",
                                                    "d_model", "head_dim", "seq_len", "seq_len_k", "causal",
                                                    "window",  "scale",    "threads", "cache"};
constexpr std::array<std::string_view, 3> kPasses = {"fwd", "bwd", "fwd_bwd"};
constexpr std::size_t kFwd = 0, kBwd = 1, kFwdBwd = 2;

/// The rows of one kernel on one point, by pass; the last one where a pass is there twice.
struct Entry {
  std::string kernel;
  const Row* point = nullptr;
  std::array<const Row*, kPasses.size()> by_pass{};
};

struct Group {
  std::vector<Entry> entries;
};

bool is_ok(const Row* row) { return row != nullptr && row->status == status::kOk; }

Number time_ratio(const Row* base, const Row* row) {
  if (!is_ok(base) || !is_ok(row) || base->timing != row->timing) return {};
  if (!base->time_us_median || !row->time_us_median) return {};
  if (!(*base->time_us_median > 0) || !(*row->time_us_median > 0)) return {};
  return *base->time_us_median / *row->time_us_median;
}

/// Passes whose peaks make up a training step: forward and backward where a backward was run, else what was run.
std::vector<std::size_t> memory_passes(const Entry& base, const Entry& entry) {
  const auto was_run = [&](std::size_t pass) {
    return base.by_pass[pass] != nullptr || entry.by_pass[pass] != nullptr;
  };
  if (was_run(kBwd)) return was_run(kFwd) ? std::vector{kFwd, kBwd} : std::vector{kBwd};
  return {was_run(kFwdBwd) ? kFwdBwd : kFwd};
}

Number memory_ratio(const Entry& base, const Entry& entry) {
  std::int64_t base_peak = 0;
  std::int64_t peak = 0;
  for (const std::size_t pass : memory_passes(base, entry)) {
    const Row* of_base = base.by_pass[pass];
    const Row* of_entry = entry.by_pass[pass];
    if (!is_ok(of_base) || !is_ok(of_entry) || !of_base->peak_bytes || !of_entry->peak_bytes) return {};
    base_peak = std::max(base_peak, *of_base->peak_bytes);
    peak = std::max(peak, *of_entry->peak_bytes);
  }
  if (base_peak <= 0 || peak <= 0) return {};
  return static_cast<double>(base_peak) / static_cast<double>(peak);
}

std::string point_key(const Row& row) {
  std::string key;
  for (const Column* column : axis_columns()) key.append(plain_text(row, *column)).append(1, '\n');
  return key;
}

/// Kernels of which the rows have more than one variant are told apart by it.
std::unordered_set<std::string> kernels_with_variants(const Document& document) {
  std::unordered_map<std::string, std::string> first;
  std::unordered_set<std::string> several;
  for (const Row& row : document.rows) {
    // A refused row may not know which implementation would have run.
    if (row.variant.empty()) continue;
    const auto [place, is_new] = first.emplace(row.kernel, row.variant);
    if (!is_new && place->second != row.variant) several.insert(row.kernel);
  }
  return several;
}

std::vector<Group> grouped(const Document& document) {
  const std::unordered_set<std::string> several = kernels_with_variants(document);
  std::vector<Group> groups;
  std::unordered_map<std::string, std::size_t> group_of;
  for (const Row& row : document.rows) {
    const auto pass = std::find(kPasses.begin(), kPasses.end(), row.pass);
    if (pass == kPasses.end()) continue;
    const auto [place, is_new] = group_of.emplace(point_key(row), groups.size());
    if (is_new) groups.emplace_back();
    std::vector<Entry>& entries = groups[place->second].entries;
    const std::string kernel = several.contains(row.kernel) ? kernel_text(row) : row.kernel;
    auto entry = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.kernel == kernel; });
    if (entry == entries.end()) entry = entries.insert(entries.end(), Entry{kernel, &row, {}});
    entry->by_pass[static_cast<std::size_t>(pass - kPasses.begin())] = &row;
  }
  return groups;
}

bool is_customary_scale(const Row& row) {
  if (!row.scale || !row.head_dim) return !row.scale;
  return std::fabs(*row.scale * std::sqrt(static_cast<double>(*row.head_dim)) - 1.0) < 1e-5;
}

bool says_nothing(const Row& row, std::string_view axis) {
  if (axis == "kv_heads") return row.kv_heads == row.heads || !row.kv_heads;
  if (axis == "seq_len_k") return row.seq_len_k == row.seq_len || !row.seq_len_k;
  if (axis == "head_dim") return row.d_model && row.heads;
  if (axis == "scale") return is_customary_scale(row);
  return false;
}

}  // namespace

bool is_baseline(const Row& row, std::string_view baseline) {
  if (row.kernel == baseline) return true;
  const std::string variant = row.kernel + ":" + row.variant;
  return variant == baseline || variant.starts_with(std::string(baseline) + "+");
}

std::vector<Speedup> speedups(const Document& document, std::string_view baseline) {
  std::vector<Speedup> all;
  for (const Group& group : grouped(document)) {
    const auto base = std::find_if(group.entries.begin(), group.entries.end(),
                                   [&](const Entry& entry) { return is_baseline(*entry.point, baseline); });
    for (const Entry& entry : group.entries) {
      if (is_baseline(*entry.point, baseline)) continue;
      Speedup speedup{entry.point, entry.kernel, {}, {}, {}, {}};
      if (base != group.entries.end()) {
        speedup.fwd = time_ratio(base->by_pass[kFwd], entry.by_pass[kFwd]);
        speedup.bwd = time_ratio(base->by_pass[kBwd], entry.by_pass[kBwd]);
        speedup.fwd_bwd = time_ratio(base->by_pass[kFwdBwd], entry.by_pass[kFwdBwd]);
        speedup.memory = memory_ratio(*base, entry);
      }
      all.push_back(std::move(speedup));
    }
  }
  return all;
}

std::vector<const Column*> axis_columns() {
  std::vector<const Column*> axes;
  for (const std::string_view name : kAxes) {
    axes.push_back(find_column(name));
    ATTNBENCH_ENSURE(axes.back() != nullptr, "an axis is not one of columns()");
  }
  return axes;
}

AxisSplit split_axes(const std::vector<const Row*>& rows) {
  AxisSplit split;
  if (rows.empty()) return split;
  for (const Column* axis : axis_columns()) {
    bool silent = true;
    bool varies = false;
    const std::string first = plain_text(*rows.front(), *axis);
    for (const Row* row : rows) {
      const std::string text = plain_text(*row, *axis);
      varies = varies || text != first;
      silent = silent && (text.empty() || says_nothing(*row, axis->name));
    }
    if (!silent) (varies ? split.varying : split.fixed).push_back(axis);
  }
  return split;
}

std::string axes_sentence(const Row& row, const std::vector<const Column*>& axes) {
  std::string sentence;
  for (const Column* axis : axes) {
    if (!sentence.empty()) sentence += ", ";
    const bool is_word = std::holds_alternative<Text Row::*>(axis->field);
    if (axis->name == "causal") {
      sentence += row.causal == 1 ? "causal" : "not causal";
    } else {
      sentence += is_word && axis->name != "cache" ? plain_text(row, *axis)
                                                   : fmt::format("{} {}", axis->name, plain_text(row, *axis));
    }
  }
  return sentence;
}

std::string status_sentence(const Document& document) {
  std::map<std::string, std::size_t> counts;
  std::vector<std::string> order;
  for (const Row& row : document.rows) {
    if (++counts[row.status] == 1) order.push_back(row.status);
  }
  std::stable_partition(order.begin(), order.end(), [](const std::string& word) { return word == status::kOk; });
  std::string sentence = fmt::format("{} {}", document.rows.size(), document.rows.size() == 1 ? "row" : "rows");
  const char* separator = ": ";
  for (const std::string& word : order) {
    sentence += fmt::format("{}{} {}", separator, counts[word], one_line(word));
    separator = ", ";
  }
  return sentence;
}

std::vector<SpeedupRange> speedup_ranges(const std::vector<Speedup>& all, Number Speedup::*ratio) {
  std::vector<SpeedupRange> ranges;
  for (const Speedup& speedup : all) {
    if (!(speedup.*ratio)) continue;
    const double value = *(speedup.*ratio);
    auto range = std::find_if(ranges.begin(), ranges.end(), [&](const auto& r) { return r.kernel == speedup.kernel; });
    if (range == ranges.end()) range = ranges.insert(ranges.end(), SpeedupRange{speedup.kernel, 0, value, 0, value});
    range->points += 1;
    range->low = std::min(range->low, value);
    range->high = std::max(range->high, value);
    range->mean += std::log(value);
  }
  for (SpeedupRange& range : ranges) range.mean = std::exp(range.mean / static_cast<double>(range.points));
  return ranges;
}

}  // namespace attnbench::reports
