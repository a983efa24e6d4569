// The grammar of a sweep axis: text to values, with the place of a mistake. Pure.
//
//   list    item,item,...          optionally in [ ]
//   item    number | none | lo:hi | lo:hi:step | lo:hi:xF (or *F) | 2^a..2^b
//   number  digits with k, Ki (1024), M or Mi (1024 * 1024), or base^exponent
// Ranges include hi only when they hit it exactly. Repeated values are dropped, the order is kept.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace attnbench::plan {

/// What an axis accepts. Values beyond `max` are refused where they are written.
struct AxisLimits {
  std::int64_t min = 1;
  std::int64_t max = std::int64_t{1} << 40;
  bool none = false;  // the word none, and -1, stand for "not set", value -1
};

/// A mistake in a value: where (offset into the text), what is wrong, what to type instead.
struct SyntaxError {
  std::size_t position = 0;
  std::string message;
  std::string hint;
  bool operator==(const SyntaxError&) const = default;
};

using AxisValues = tl::expected<std::vector<std::int64_t>, SyntaxError>;

AxisValues parse_axis(std::string_view text, const AxisLimits& limits = {});

/// Values as a list that parse_axis reads back.
std::string format_axis(std::span<const std::int64_t> values);

/// Inclusive bounds of one exclude term: a number, or lo:hi.
struct Interval {
  std::int64_t low = 0;
  std::int64_t high = 0;
};
/// Any number that some axis takes; -1 is the window that is not set.
inline constexpr AxisLimits kTermLimits{-1, std::int64_t{1} << 40, true};
tl::expected<Interval, SyntaxError> parse_interval(std::string_view text, const AxisLimits& limits);

/// The sentence, the text with a caret under the position, and the hint, on lines of their own.
std::string show(const SyntaxError& error, std::string_view option, std::string_view text);

}  // namespace attnbench::plan
