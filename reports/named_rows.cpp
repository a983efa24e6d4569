// Names rows.
#include "reports/named_rows.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <unordered_set>

#include "bench/base/stats.hpp"
#include "reports/columns.hpp"

namespace attnbench::reports {
namespace {

std::string name_of(const Row& row) {
  if (!row.key.empty()) return row.key;
  std::string name = row.kernel;
  for (const char* axis : {"variant", "pass", "dtype", "causal", "batch", "heads", "kv_heads", "d_model", "seq_len",
                           "seq_len_k", "window", "cache", "threads", "device"}) {
    const std::string text = plain_text(row, *find_column(axis));
    if (!text.empty()) name += fmt::format("/{}:{}", axis, text);
  }
  return name;
}

std::vector<NamedRow> named(const Document& document, bool timed_only) {
  std::vector<NamedRow> rows;
  std::unordered_set<std::string> taken;
  for (const Row& row : document.rows) {
    if (timed_only && !is_timed(row)) continue;
    std::string name = name_of(row);
    for (int copy = 2; !taken.insert(name).second; ++copy) name = fmt::format("{}#{}", name_of(row), copy);
    rows.push_back({&row, std::move(name)});
  }
  return rows;
}

}  // namespace

bool is_timed(const Row& row) { return row.status == status::kOk && row.time_us_median.has_value(); }

std::vector<NamedRow> named_rows(const Document& document) { return named(document, false); }

std::vector<NamedRow> timed_rows(const Document& document) { return named(document, true); }

std::vector<NamedRow> sampled_rows(const Document& document) {
  std::vector<NamedRow> rows = timed_rows(document);
  std::erase_if(rows, [](const NamedRow& named) {
    const std::vector<double>& times = named.row->sample_times_us;
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    constexpr double kNsPerUs = 1e3;
    return !base::median(times) || !std::isfinite(sum * kNsPerUs) ||
           !std::isfinite(base::stdev(times).value_or(0) * kNsPerUs);
  });
  return rows;
}

}  // namespace attnbench::reports
