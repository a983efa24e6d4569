// Where --csv, --json, --md, --gbench-json and --emit write, told apart.
#pragma once

#include <filesystem>
#include <string>

#include "bench/base/error.hpp"
#include "bench/cli/options.hpp"

namespace attnbench::cli {

/// r.csv, ./r.csv and a link to it are one file, whether it is there already or not.
bool same_place(const std::filesystem::path& a, const std::filesystem::path& b);

/// No two of them write to one place, however it is spelled, and none writes over the rows: the file, or the rows.jsonl
/// of the folder, that `rows` names (empty: none). Error: kUsage
base::Result<void> check_writers(const Outputs& outputs, const std::string& rows);

}  // namespace attnbench::cli
