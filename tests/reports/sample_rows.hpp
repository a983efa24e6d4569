// Rows that tests share.
#pragma once

#include <cstdint>
#include <string>

#include "reports/row.hpp"

namespace attnbench::reports {

/// A measured row: kernel, pass, time and peak memory given, the rest plausible and fixed.
Row measured_row(const std::string& kernel, const std::string& pass, double time_us, std::int64_t peak_bytes,
                 std::int64_t d_model = 16, std::int64_t seq_len = 256);

/// The same without any figure, for a status that has none.
Row refused_row(const std::string& kernel, const std::string& pass, const std::string& status,
                const std::string& reason);

/// Every status, missing values, and texts with a quote, a comma, a pipe, an ampersand, a line break and UTF-8.
Document every_status();

/// A row whose columns are set, or left absent, at random; texts and numbers are awkward ones.
Row random_row(std::uint64_t seed);

/// Path of a file below tests/golden/reports.
std::string golden_path(const std::string& name);
/// Bytes of a file; empty and a test failure when it cannot be read.
std::string file_bytes(const std::string& path);
/// Compares with the golden file, or writes it when ATTNBENCH_UPDATE_GOLDEN is set.
void expect_golden(const std::string& name, const std::string& bytes);

}  // namespace attnbench::reports
