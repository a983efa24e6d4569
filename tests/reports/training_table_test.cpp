#include "reports/training_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/emit.hpp"
#include "reports/format.hpp"
#include "reports/table.hpp"

namespace attnbench::reports {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Row training_row(std::int64_t world, const char* strategy) {
  Row row;
  row.key = "fsdp/tiny/" + std::string(strategy) + "/w" + std::to_string(world);
  row.kernel = "fsdp";
  row.strategy = row.variant = strategy;
  row.model = "tiny";
  row.transport = world == 1 ? "none" : "mpi";
  row.dtype = "bf16";
  row.world_size = world;
  row.prefetch = 2;
  row.batch = 4;
  row.seq_len = 128;
  row.status = status::kOk;
  row.time_us_median = 138e3;
  row.tokens_per_s = 37060;
  row.tflops = 0.0532;
  row.forward_us = 47700;
  row.backward_us = 89000;
  row.exposed_us = 12;
  row.peak_bytes = 95 << 20;
  row.loss = 6.63;
  row.gemm_pct = 81.4;
  if (world > 1) {
    row.communication_us = 31000;
    row.scaling_pct = 93;
    row.emulated = 1;
  }
  return row;
}

Document training_runs() {
  Document document;
  document.rows = {training_row(1, "fsdp"), training_row(2, "fsdp"), training_row(2, "ddp")};
  Row failed = training_row(4, "fsdp");
  failed.status = status::kFailed;
  failed.reason = "rank 1 (process 77) died in the all-gather of layers.3";
  document.rows.push_back(failed);
  return document;
}

TEST(TrainingTable, ShowsRanksTimesRatesAndTheLink) {
  const Document document = training_runs();
  std::string table = table_header({false, 160}, RowKind::kTraining);
  for (const Row& row : document.rows) table += table_row(row, {false, 160});
  table += table_summary(document, {}, {});
  for (const char* text : {"tokens/s", "37.1 k", "tiny B4 S128", "mpi*", "93%", "n/a", "138 ms", "95.0 MiB", "bf16",
                           "rank 1 (process 77) died", "the link is emulated", "4 rows: 3 ok, 1 failed"}) {
    EXPECT_THAT(table, HasSubstr(text));
  }
  EXPECT_THAT(table, Not(HasSubstr("Speed-up")));
}

TEST(TrainingTable, FitsTheTerminal) {
  for (const int width : {120, 119, 100, 90, 200}) {
    std::string table = table_header({false, width}, RowKind::kTraining);
    for (const Row& row : training_runs().rows) table += table_row(row, {false, width});
    std::istringstream lines(table);
    const auto room = static_cast<std::size_t>(width);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(cell_count(line), room) << line;
  }
}

TEST(TrainingTable, HasEveryColumnAndTheWholeModelWhereNoTerminalIs) {
  Document document = training_runs();
  document.rows[0].model = "tiny/d48/ff96/l3/h6/v1000";
  TableFit fit;
  for (const Row& row : document.rows) fit.add(row);
  const TableStyle style = fit.applied_to({});
  const std::string header = table_header(style, RowKind::kTraining);
  for (const char* title : {"via", "dtype", "ahead", "GEMM%", "comm", "scaling", "loss", "status"}) {
    EXPECT_THAT(header, HasSubstr(title));
  }
  EXPECT_THAT(table_row(document.rows[0], style), HasSubstr(" tiny/d48/ff96/l3/h6/v1000 B4 S128 "));
}

TEST(TrainingTable, MarkdownHasTheSameCells) {
  const auto text = emit("md", training_runs(), {});
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("# Sharded training"));
  EXPECT_THAT(*text, HasSubstr("| fsdp | 2 | mpi\\* | tiny B4 S128 | bf16 | 2 | 138 ms | 37.1 k |"));
  EXPECT_THAT(*text, HasSubstr("failed: rank 1 (process 77) died in the all-gather of layers.3 |"));
  EXPECT_THAT(*text, Not(HasSubstr("Speed-up")));
}

}  // namespace
}  // namespace attnbench::reports
