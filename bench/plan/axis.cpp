// Recursive descent over one line of text.
#include "bench/plan/axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>

#include "bench/base/units.hpp"

namespace attnbench::plan {
namespace {

/// More values than anybody sweeps: a range this long is a slip of the pen (1:1M instead of 1:1M:x2).
constexpr std::size_t kMaxValues = 10000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::optional<std::int64_t> multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// A number as written: base and exponent are kept, for 2^a..2^b.
struct Number {
  std::int64_t value = 0;
  std::int64_t base = 0;  // 0: not a power
  std::int64_t exponent = 0;
  std::size_t position = 0;
};

class Parser {
 public:
  Parser(std::string_view text, const AxisLimits& limits) : text_(text), limits_(limits) {}

  AxisValues list() {
    bracket();
    do {
      if (auto ok = item(); !ok) return tl::unexpected(ok.error());
    } while (take(','));
    if (at_ < end_) return tl::unexpected(unexpected());
    return std::move(values_);
  }

  tl::expected<Interval, SyntaxError> interval() {
    if (limits_.none && text_ == "none") return Interval{-1, -1};
    const auto low = bounded();
    if (!low) return tl::unexpected(low.error());
    Interval result{low->value, low->value};
    if (take(':')) {
      const auto high = bounded();
      if (!high) return tl::unexpected(high.error());
      if (high->value < low->value) return tl::unexpected(reversed(*low, *high, ":"));
      result.high = high->value;
    }
    skip_blanks();
    if (at_ < end_) return tl::unexpected(unexpected());
    return result;
  }

 private:
  using Status = tl::expected<void, SyntaxError>;

  static tl::unexpected<SyntaxError> fail(std::size_t position, std::string message, std::string hint) {
    return tl::unexpected<SyntaxError>(SyntaxError{position, std::move(message), std::move(hint)});
  }

  void bracket() {
    skip_blanks();
    while (end_ > at_ && text_[end_ - 1] == ' ') --end_;
    if (at_ < end_ && text_[at_] == '[' && text_[end_ - 1] == ']') {
      ++at_;
      --end_;
    }
  }

  void skip_blanks() {
    while (at_ < end_ && text_[at_] == ' ') ++at_;
  }

  bool take(char c) {
    skip_blanks();
    if (at_ >= end_ || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  SyntaxError unexpected() const {
    return {at_, fmt::format("'{}' is not expected here", text_[at_]), "separate values with commas, e.g. 256,1k,4k"};
  }

  static SyntaxError reversed(const Number& low, const Number& high, std::string_view joint) {
    const auto word = [](const Number& n) {
      return n.base != 0 ? fmt::format("{}^{}", n.base, n.exponent) : base::format_count(n.value);
    };
    return {high.position,
            fmt::format("the range is reversed: it ends at {}, below its start {}", word(high), word(low)),
            fmt::format("write {}{}{}", word(high), joint, word(low))};
  }

  Status item() {
    skip_blanks();
    if (limits_.none && text_.substr(at_, 4) == "none") {
      at_ += 4;
      return push(-1, at_ - 4);
    }
    const auto low = bounded();
    if (!low) return tl::unexpected(low.error());
    if (text_.substr(0, end_).substr(at_, 2) == "..") {
      at_ += 2;
      return powers(*low);
    }
    if (take(':')) return range(*low);
    return push(low->value, low->position);
  }

  Status range(const Number& low) {
    const auto high = bounded();
    if (!high) return tl::unexpected(high.error());
    if (high->value < low.value) return tl::unexpected<SyntaxError>(reversed(low, *high, ":"));
    if (!take(':')) return linear(low, high->value, 1);
    skip_blanks();
    if (take('x') || take('*')) return geometric(low, *high);
    const auto step = number();
    if (!step) return tl::unexpected(step.error());
    if (step->value <= 0) {
      return fail(step->position, "the step must be at least 1", "e.g. 256:1024:256, or x2 to double each time");
    }
    return linear(low, high->value, step->value);
  }

  Status linear(const Number& low, std::int64_t high, std::int64_t step) {
    for (std::int64_t value = low.value; value <= high;) {
      if (auto ok = push(value, low.position); !ok) return ok;
      if (high - value < step) break;
      value += step;
    }
    return {};
  }

  Status geometric(const Number& low, const Number& high) {
    const auto factor = number();
    if (!factor) return tl::unexpected(factor.error());
    if (factor->value < 2) {
      return fail(factor->position, "the factor must be at least 2", "e.g. 256:4096:x2 for 256, 512, ... 4096");
    }
    if (low.value <= 0) {
      return fail(low.position, "a range that multiplies must start at 1 or more", "e.g. 256:4096:x2");
    }
    for (std::optional<std::int64_t> value = low.value; value && *value <= high.value;
         value = multiply(*value, factor->value)) {
      if (auto ok = push(*value, low.position); !ok) return ok;
    }
    return {};
  }

  Status powers(const Number& low) {
    const auto high = bounded();
    if (!high) return tl::unexpected(high.error());
    if (low.base == 0 || low.base != high->base) {
      return fail(low.base == 0 ? low.position : high->position, "'..' joins two powers of one base",
                  "e.g. 2^9..2^13; other ranges are lo:hi:step or lo:hi:xF");
    }
    if (high->exponent < low.exponent) return tl::unexpected<SyntaxError>(reversed(low, *high, ".."));
    if (low.base < 2) return fail(low.position, "the base must be at least 2", "e.g. 2^9..2^13");
    std::int64_t value = low.value;
    for (std::int64_t e = low.exponent; e <= high->exponent; ++e) {
      if (auto ok = push(value, low.position); !ok) return ok;
      value *= e < high->exponent ? low.base : 1;
    }
    return {};
  }

  /// A number within the axis's limits.
  tl::expected<Number, SyntaxError> bounded() {
    const auto result = number();
    if (!result) return result;
    const bool unset = limits_.none && result->value == -1;
    if (!unset && result->value < limits_.min) {
      return fail(result->position, fmt::format("{} is too small", result->value),
                  fmt::format("the least value is {}{}", limits_.min, limits_.none ? ", or none" : ""));
    }
    if (result->value > limits_.max) {
      return fail(result->position, fmt::format("{} is too large", base::format_count(result->value)),
                  fmt::format("the largest value is {}", base::format_count(limits_.max)));
    }
    return result;
  }

  tl::expected<Number, SyntaxError> number() {
    skip_blanks();
    Number result;
    result.position = at_;
    const bool negative = at_ < end_ && text_[at_] == '-';
    if (negative) ++at_;
    const auto magnitude = digits(result.position);
    if (!magnitude) return tl::unexpected(magnitude.error());
    result.value = negative ? -*magnitude : *magnitude;
    if (at_ < end_ && text_[at_] == '^') {
      ++at_;
      if (auto ok = power(result); !ok) return tl::unexpected(ok.error());
    }
    if (auto ok = suffix(result); !ok) return tl::unexpected(ok.error());
    return result;
  }

  tl::expected<std::int64_t, SyntaxError> digits(std::size_t start) {
    if (at_ >= end_ || !is_digit(text_[at_])) {
      const std::string hint = "a whole number such as 4096, 4k or 2^12";
      if (at_ >= end_ || text_[at_] == ',') return fail(at_, "a value is missing", hint);
      return fail(at_, "not a number", hint);
    }
    std::int64_t value = 0;
    for (; at_ < end_ && is_digit(text_[at_]); ++at_) {
      const std::optional<std::int64_t> shifted = multiply(value, 10);
      if (!shifted || __builtin_add_overflow(*shifted, text_[at_] - '0', &value)) return overflow(start);
    }
    const bool fraction = at_ < end_ && text_[at_] == '.' && !(at_ + 1 < end_ && text_[at_ + 1] == '.');
    if (fraction) return fail(at_, "only whole numbers are taken", "e.g. 1536 for 1.5k");
    return value;
  }

  tl::unexpected<SyntaxError> overflow(std::size_t start) const {
    return fail(start, "the number does not fit 64 bits",
                fmt::format("the largest value is {}", base::format_count(limits_.max)));
  }

  Status power(Number& result) {
    const auto exponent = digits(at_);
    if (!exponent) return tl::unexpected(exponent.error());
    result.base = result.value;
    result.exponent = *exponent;
    std::optional<std::int64_t> value = 1;
    // 64 doublings overflow any base but -1, 0 and 1, whose powers repeat.
    for (std::int64_t e = 0; value && e < std::min<std::int64_t>(*exponent, 64); ++e)
      value = multiply(*value, result.base);
    if (!value) return overflow(result.position);
    result.value = *value;
    return {};
  }

  Status suffix(Number& result) {
    const std::size_t start = at_;
    while (at_ < end_ && is_letter(text_[at_])) ++at_;
    const std::string_view word = text_.substr(start, at_ - start);
    const std::optional<std::int64_t> factor = base::count_suffix(word);
    if (!factor) {
      return fail(start, fmt::format("'{}' is not a suffix", word), "k and Ki are 1024, M and Mi are 1024 * 1024");
    }
    const std::optional<std::int64_t> value = multiply(result.value, *factor);
    if (!value) return overflow(result.position);
    if (*factor != 1) result.base = 0;
    result.value = *value;
    return {};
  }

  Status push(std::int64_t value, std::size_t position) {
    if (!seen_.insert(value).second) return {};
    if (values_.size() == kMaxValues) {
      return fail(position, fmt::format("more than {} values", kMaxValues), "give a step, e.g. 1k:64k:1k or 1k:64k:x2");
    }
    values_.push_back(value);
    return {};
  }

  std::string_view text_;
  AxisLimits limits_;
  std::size_t at_ = 0;
  std::size_t end_ = text_.size();
  std::vector<std::int64_t> values_;
  std::unordered_set<std::int64_t> seen_;
};

}  // namespace

AxisValues parse_axis(std::string_view text, const AxisLimits& limits) { return Parser(text, limits).list(); }

tl::expected<Interval, SyntaxError> parse_interval(std::string_view text, const AxisLimits& limits) {
  return Parser(text, limits).interval();
}

std::string format_axis(std::span<const std::int64_t> values) {
  std::string text;
  for (const std::int64_t value : values) {
    if (!text.empty()) text += ',';
    text += base::format_count(value);
  }
  return text;
}

std::string show(const SyntaxError& error, std::string_view option, std::string_view text) {
  std::string lines = fmt::format("{}: {}\n  {}\n  {}^", option, error.message, text, std::string(error.position, ' '));
  if (!error.hint.empty()) lines += "\n  try: " + error.hint;
  return lines;
}

}  // namespace attnbench::plan
