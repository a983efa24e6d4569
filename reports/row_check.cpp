// The range of each column.
#include "reports/row_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "bench/base/suggest.hpp"
#include "reports/columns.hpp"

namespace attnbench::reports {

namespace {

struct Words {
  std::string_view column;
  Text Row::*field;
  std::span<const std::string_view> known;
};

constexpr std::array<std::string_view, 9> kStatuses{status::kOk,     status::kIncorrect,    status::kUnsupported,
                                                    status::kOom,    status::kOomPredicted, status::kTimeout,
                                                    status::kFailed, status::kDeviceLost,   status::kInterrupted};
constexpr std::array<std::string_view, 4> kPasses{"fwd", "bwd", "fwd_bwd", "step"};
constexpr std::array<std::string_view, 3> kDtypes{"fp32", "bf16", "fp16"};
constexpr std::array<std::string_view, 2> kCaches{"cold", "hot"};
constexpr std::array<std::string_view, 4> kTimings{"wall", "events", "graph", "declared"};
constexpr std::array<Words, 5> kWords{Words{"status", &Row::status, kStatuses}, Words{"pass", &Row::pass, kPasses},
                                      Words{"dtype", &Row::dtype, kDtypes}, Words{"cache", &Row::cache, kCaches},
                                      Words{"timing", &Row::timing, kTimings}};
constexpr std::array<std::string_view, 3> kFlags{"causal", "launch_bound", "foreign_memory"};

std::string fault_of_words(const Row& row) {
  for (const Words& words : kWords) {
    const std::string& word = row.*words.field;
    if (word.empty() || std::find(words.known.begin(), words.known.end(), word) != words.known.end()) continue;
    return fmt::format("column {} does not know \"{}\"{}", words.column, word.substr(0, 60),
                       base::did_you_mean(word.substr(0, 60), words.known));
  }
  return {};
}

template <typename Value>
std::string fault_of_number(const Column& column, Value value) {
  if (column.name == "seed") return {};
  if (column.name.starts_with("time_us_") && !(value > 0)) {
    return fmt::format("column {} is {}; a time is above 0", column.name, value);
  }
  if (value < 0) return fmt::format("column {} is {}; it cannot be below 0", column.name, value);
  const bool flag = std::find(kFlags.begin(), kFlags.end(), column.name) != kFlags.end();
  return flag && value > 1 ? fmt::format("column {} is {}; it is 0 or 1", column.name, value) : std::string();
}

std::string fault_of_numbers(const Row& row) {
  for (const Column& column : columns()) {
    std::string fault;
    if (const auto* number = std::get_if<Number Row::*>(&column.field); number != nullptr && row.*(*number)) {
      fault = fault_of_number(column, *(row.*(*number)));
    }
    if (const auto* integer = std::get_if<Integer Row::*>(&column.field); integer != nullptr && row.*(*integer)) {
      fault = fault_of_number(column, *(row.*(*integer)));
    }
    if (!fault.empty()) return fault;
  }
  const auto bad =
      std::find_if(row.sample_times_us.begin(), row.sample_times_us.end(), [](double t) { return !(t > 0); });
  return bad == row.sample_times_us.end() ? std::string() : fmt::format("a sample is {}; a time is above 0", *bad);
}

}  // namespace

std::string fault_of(const Row& row) {
  if (std::string fault = fault_of_words(row); !fault.empty()) return fault;
  if (std::string fault = fault_of_numbers(row); !fault.empty()) return fault;
  const bool is_ok = row.status == status::kOk;
  // A check has no times: of kernels (its key says so), or a training run that was followed step by step.
  const bool check = row.key.starts_with(kVerifyKey) || row.pass == "step";
  if (is_ok && !row.time_us_median && !check) return "the row is ok and has no time_us_median";
  if (!is_ok && row.time_us_median) return fmt::format("the row is {} and has a time_us_median", row.status);
  return {};
}

}  // namespace attnbench::reports
