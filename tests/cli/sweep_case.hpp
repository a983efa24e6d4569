// A sweep into a folder of its own, and what it left there.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "reports/rows_io.hpp"
#include "tests/cli/program.hpp"

namespace attnbench::tests {

using reports::Row;

/// One point that the mock device has done at once.
inline const char* const kSmall = " --seq-len 64 --d-model 16 --batch 1 --causal off --pass fwd ";

class Sweep : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    out_ = testing::TempDir() + "attnbench_sweep_" + std::to_string(getpid()) + "_" + info->name();
    std::filesystem::remove_all(out_);
  }
  void TearDown() override { std::filesystem::remove_all(out_); }

  Outcome sweep(const std::string& arguments) const { return run_program("sweep --out " + out_ + " " + arguments); }

  std::string rows_path() const { return out_ + "/rows.jsonl"; }

  std::string text() const {
    std::ifstream file(rows_path());
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }

  std::size_t lines() const {
    const std::string all = text();
    return static_cast<std::size_t>(std::count(all.begin(), all.end(), '\n'));
  }

  std::vector<Row> rows() const {
    auto document = reports::load_rows(rows_path());
    EXPECT_TRUE(document.has_value()) << (document ? "" : document.error().message);
    return document ? document->rows : std::vector<Row>{};
  }

  /// By kernel; for sweeps of one problem.
  std::map<std::string, Row> by_kernel() const {
    std::map<std::string, Row> result;
    for (const Row& row : rows()) result[row.kernel] = row;
    return result;
  }

  std::string out_;
};

}  // namespace attnbench::tests
