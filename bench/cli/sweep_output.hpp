// What a sweep shows while it runs: rows as they finish, and on a terminal how far it is.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "bench/cli/options.hpp"
#include "bench/plan/plan.hpp"
#include "bench/run/runner.hpp"
#include "bench/run/sink.hpp"
#include "reports/row.hpp"
#include "reports/table.hpp"

namespace attnbench::cli {

/// How the table of a plan is printed on a stream: with room for what tells its rows apart.
reports::TableStyle style_for(const plan::Plan& plan, Color color, std::FILE* stream);

/// One line on standard error that is drawn over and over; nothing where that is no terminal.
class ProgressLine {
 public:
  ProgressLine(bool quiet, double predicted_s);

  void show(const run::RunProgress& progress);
  /// Takes the line away, so that other text can be printed.
  void clear();

 private:
  bool enabled_;
  double predicted_s_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Prints each row to a stream as a line of the table, and keeps all of them.
class TableSink : public run::RowSink {
 public:
  TableSink(std::FILE* stream, reports::TableStyle style, bool quiet, ProgressLine& progress)
      : stream_(stream), style_(style), quiet_(quiet), progress_(progress) {}

  void header();
  base::Result<void> row(const reports::Row& row) override;
  reports::Document& document() { return document_; }

 private:
  std::FILE* stream_;
  reports::TableStyle style_;
  bool quiet_;
  ProgressLine& progress_;
  reports::Document document_;
};

/// Each of them can be written, as far as can be seen before a run; --out DIR may be yet to be made. Error: kFailed
base::Result<void> check_writable(const Outputs& outputs);

/// Writes --csv, --json, --md, --gbench-json and --emit, those that were asked for.
base::Result<void> write_reports(const Outputs& outputs, const reports::Document& document,
                                 const std::string& baseline);

}  // namespace attnbench::cli
