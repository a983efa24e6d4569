// How numbers look to people: three or four digits and a unit that fits. Files for programs use number_text instead.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "reports/row.hpp"

namespace attnbench::reports {

/// 12.3 us, 4.56 ms, 1.23 s.
std::string time_text(double us);
/// 2.34 TFLOP/s, 56.7 GFLOP/s; `tflops` in 1e12 per second.
std::string rate_text(double tflops);
/// 12.3 GB/s (1e9 bytes per second).
std::string gbps_text(double gbps);
/// 512 B, 1.5 MiB: powers of 1024, exact bytes below 1 KiB.
std::string bytes_text(double bytes);
/// 3.1e-06.
std::string error_text(double error);
/// 12.34x
std::string ratio_text(double ratio);
/// Three significant digits without an exponent where that is short.
std::string digits_text(double value);

/// +- half the interval of the median over the median, %; absent without an interval.
Number ci_half_width_pct(const Row& row);

/// kernel, or kernel:variant where the variant says more.
std::string kernel_text(const Row& row);

/// Number of terminal cells of UTF-8 text; every code point counts as one.
std::size_t cell_count(std::string_view text);
/// At most `cells` code points; a longer text ends in "…".
std::string fitted(std::string_view text, std::size_t cells);
std::string padded_left(std::string_view text, std::size_t cells);
std::string padded_right(std::string_view text, std::size_t cells);

/// Control characters, newlines among them, become single spaces.
std::string one_line(std::string_view text);

}  // namespace attnbench::reports
