// Whether what a row says can be: words that columns know, numbers in their range, times where there are times.
#pragma once

#include <string>
#include <string_view>

#include "reports/row.hpp"

namespace attnbench::reports {

/// Keys of rows that compare with given tensors and time nothing begin with it.
inline constexpr std::string_view kVerifyKey = "verify/";

/// A sentence on the first thing that no sweep could have written, empty where there is none.
///
/// status, pass, dtype, cache and timing hold words that are known; flags are 0 or 1; times are above 0 and other
/// numbers not below it (a seed is any number); a row that is ok has a median, unless nothing was timed (verify), and
/// one that is not has none.
std::string fault_of(const Row& row);

}  // namespace attnbench::reports
