// Numbers for people: bytes, times and counts as text, and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attnbench::base {

/// Binary units, three significant digits: 1536 is "1.50 KiB", 154618822656 is "144 GiB".
std::string format_bytes(double bytes);

/// Three significant digits and the unit that fits: "12.3 us", "4.56 ms", "1.20 s", "2 min 5 s".
std::string format_time_us(double time_us);

/// A length the way --seq-len takes it: 16384 is "16k", 1048576 is "1M", 1000 is "1000".
std::string format_count(std::int64_t count);

/// Multiplier of a count's suffix: k, K, Ki, ki (1024) and M, Mi (1024 * 1024); lengths are powers of two by custom.
std::optional<std::int64_t> count_suffix(std::string_view suffix);

/// Seconds from "3", "0.5", "500ms", "2s", "3min". Empty: not a time, negative or not finite.
std::optional<double> parse_seconds(std::string_view text);

/// A decimal number that takes up all of the text. Empty: anything else, NaN and infinities too.
std::optional<double> parse_number(std::string_view text);

}  // namespace attnbench::base
