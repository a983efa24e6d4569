// `attnbench fsdp` end to end: rows, golden trajectories on threads and on processes, refusals, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "bench/base/units.hpp"
#include "fsdp/launch.hpp"
#include "reports/rows_io.hpp"
#include "tests/cli/program.hpp"
#include "tests/sanitizers/settings.hpp"

namespace attnbench::tests {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

const char* const kSmall =
    " --d-model 16 --d-ff 32 --layers 2 --heads 2 --vocab 50 --batch 2 --seq-len 8 --steps 3 "
    "--warmup 1 ";

std::string golden(const std::string& name) {
  return std::string(ATTNBENCH_SOURCE_DIR) + "/tests/golden/training_" + name + ".safetensors";
}

class Fsdp : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    out_ = testing::TempDir() + "attnbench_fsdp_" + std::to_string(getpid()) + "_" + info->name();
    std::filesystem::remove_all(out_);
    ignore_leaks_of_ranks();
  }
  void TearDown() override { std::filesystem::remove_all(out_); }

  std::vector<reports::Row> rows() const {
    const auto document = reports::load_rows(out_);
    EXPECT_TRUE(document) << (document ? "" : document.error().message);
    return document ? document->rows : std::vector<reports::Row>();
  }

  std::string out_;
};

/// Skips where ranks cannot be processes.
#define NEEDS_MPI()                                                \
  if (const auto mpi = fsdp::check_mpi(); !mpi) {                  \
    GTEST_SKIP() << "ranks as processes: " << mpi.error().message; \
  }                                                                \
  static_assert(true)

void expect_full_rows(const std::vector<reports::Row>& rows) {
  ASSERT_EQ(rows.size(), 4u);
  for (const reports::Row& row : rows) {
    EXPECT_EQ(row.status, "ok") << row.reason;
    EXPECT_EQ(row.samples, 3);
    EXPECT_EQ(row.peak_bytes, row.predicted_bytes);
    EXPECT_GT(row.tokens_per_s.value_or(0), 0);
    EXPECT_GT(row.tflops.value_or(0), 0);
    EXPECT_GT(row.loss.value_or(0), 0);
    EXPECT_GT(row.forward_us.value_or(0), 0);
    EXPECT_GT(row.first_step_us.value_or(0), 0) << "apart from the samples";
    EXPECT_GT(row.backward_us.value_or(0), 0);
    EXPECT_EQ(row.gather_busbw_gbps.has_value(), row.world_size != 1 && row.strategy == "fsdp");
    EXPECT_EQ(row.reduce_busbw_gbps.has_value(), row.world_size != 1);
    EXPECT_EQ(row.communication_us.has_value(), row.world_size != 1) << "absent on one rank, which has none";
    EXPECT_EQ(row.memory_weights_bytes.value_or(0) % (4 * 128), 0);
    const std::int64_t sum = *row.memory_weights_bytes + *row.memory_optimizer_bytes +
                             *row.memory_gradient_shard_bytes + *row.memory_gathered_bytes +
                             *row.memory_gradients_bytes + *row.memory_communication_bytes +
                             *row.memory_activations_bytes;
    EXPECT_EQ(sum, *row.peak_bytes) << "the categories are all of it";
    EXPECT_GE(*row.time_us_median, *row.forward_us);
  }
  ASSERT_TRUE(rows[0].scaling_pct);
  EXPECT_NEAR(*rows[0].scaling_pct, 100, 1e-9);
  EXPECT_TRUE(rows[1].scaling_pct.has_value());
  EXPECT_NE(rows[0].key, rows[1].key);
  EXPECT_LT(*rows[1].memory_weights_bytes, *rows[0].memory_weights_bytes);
}

TEST_F(Fsdp, WritesARowForEachWorldSizeAndStrategyOnThreads) {
  const Outcome run = run_program("fsdp --transport local --world-size 1,2 --strategy fsdp,ddp --out " + out_ + kSmall);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("4 rows: 4 ok"));
  expect_full_rows(rows());
  EXPECT_EQ(rows()[1].transport, "local");
}

TEST_F(Fsdp, WritesARowForEachWorldSizeAndStrategyOnProcesses) {
  NEEDS_MPI();
  const Outcome run = run_program("fsdp --transport mpi --world-size 1,2 --strategy fsdp,ddp --out " + out_ + kSmall);
  EXPECT_EQ(run.code, 0) << run.err;
  expect_full_rows(rows());
  EXPECT_EQ(rows()[1].transport, "mpi");
  EXPECT_THAT(rows()[1].command, HasSubstr("--transport mpi --world-size 1,2"));
}

TEST_F(Fsdp, AnEmulatedLinkIsInTheRowAndInTheTable) {
  const Outcome run = run_program("fsdp --transport local --world-size 2 --link 200us,1 --out " + out_ + kSmall);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("local*"));
  EXPECT_EQ(rows()[0].emulated, 1);
  EXPECT_EQ(rows()[0].link, "200us,1");
  EXPECT_GE(rows()[0].gather_us.value_or(0), 200);
}

TEST_F(Fsdp, ReportReadsTheRowsAgain) {
  ASSERT_EQ(run_program("fsdp --transport local --world-size 1 --out " + out_ + kSmall).code, 0);
  const Outcome table = run_program("report " + out_);
  EXPECT_THAT(table.out, HasSubstr("tokens/s"));
  const Outcome markdown = run_program("report " + out_ + " --md -");
  EXPECT_THAT(markdown.out, HasSubstr("# Sharded training"));
}

TEST_F(Fsdp, FollowsTheGoldenFilesOnThreadsAtEveryWorldSize) {
  for (const char* name : {"small", "clip"}) {
    const Outcome run =
        run_program("fsdp --transport local --world-size 1,2,3,4,8 --prefetch 0,2 --verify " + golden(name));
    EXPECT_EQ(run.code, 0) << run.out << run.err;
    EXPECT_THAT(run.out, Not(HasSubstr("FAIL")));
    EXPECT_THAT(run.out, HasSubstr("8 ranks, fsdp, fp32, prefetch 2"));
    EXPECT_THAT(run.out, HasSubstr("step 5 loss"));
    EXPECT_THAT(run.out, HasSubstr("grad0 layers.0.attn.q_proj.weight"));
    EXPECT_THAT(run.out, HasSubstr("final lm_head.weight"));
  }
}

TEST_F(Fsdp, FollowsTheGoldenFilesOnProcessesAtEveryWorldSize) {
  NEEDS_MPI();
  const std::string start = "fsdp --transport mpi --world-size 1,2,3,4,8 --verify ";
  for (const std::string& rest :
       {golden("small") + " --prefetch 0,1,2,3", golden("clip"), golden("small") + " --checkpoint-activations"}) {
    const Outcome run = run_program(start + rest);
    EXPECT_EQ(run.code, 0) << run.out << run.err;
    EXPECT_THAT(run.out, Not(HasSubstr("FAIL")));
    EXPECT_THAT(run.out, HasSubstr("8 ranks, fsdp, fp32, prefetch 2"));
  }
}

TEST_F(Fsdp, AMissEndsWithThreeAndNamesTheTensor) {
  std::ifstream source(golden("small"), std::ios::binary);
  std::stringstream text;
  text << source.rdbuf();
  std::string bytes = text.str();
  // An element of one tensor becomes 1.0, which the run does not reach.
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string offsets = "\"data_offsets\":[";
  const std::size_t place = bytes.find(offsets, bytes.find("\"final.lm_head.weight\"")) + offsets.size();
  const std::size_t begin = sizeof header + header + std::stoull(bytes.substr(place, 20));
  bytes.replace(begin, 4, std::string("\0\0\x80\x3f", 4));
  std::filesystem::create_directories(out_);
  const std::string path = out_ + "/changed.safetensors";
  std::ofstream(path, std::ios::binary) << bytes;
  for (const char* transport : {"local", "mpi"}) {
    if (std::string(transport) == "mpi" && !fsdp::check_mpi()) continue;
    const Outcome run = run_program(std::string("fsdp --transport ") + transport + " --world-size 2 --verify " + path);
    EXPECT_EQ(run.code, 3) << run.out << run.err;
    EXPECT_THAT(run.out, testing::ContainsRegex("final lm_head.weight .*FAIL"));
    EXPECT_EQ(run.out.find("FAIL"), run.out.rfind("FAIL")) << "and nothing else";
  }
}

/// Processes below `ancestor` that are ranks: their command line has --worker, and they are not mpiexec.
std::vector<pid_t> ranks_below(pid_t ancestor) {
  std::vector<pid_t> ranks;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream line(entry.path() / "cmdline");
    std::stringstream text;
    text << line.rdbuf();
    const std::string command = text.str();
    const bool rank = command.find("--worker") != std::string::npos && command.find("mpiexec") == std::string::npos;
    if (!rank) continue;
    pid_t up = std::stoi(name);
    for (int i = 0; i < 8 && up > 1 && up != ancestor; ++i) {
      std::ifstream stat("/proc/" + std::to_string(up) + "/stat");
      std::string all;
      std::getline(stat, all);
      const std::size_t close = all.rfind(')');
      up = close == std::string::npos ? 0 : std::stoi(all.substr(close + 4));
    }
    if (up == ancestor) ranks.push_back(std::stoi(name));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// Starts a long run on processes, sends a signal to one of them (SIGINT: to the program itself) some time after all
/// are there, and returns how the program ended.
Outcome disturb(int signal, const std::string& folder, std::vector<pid_t>& ranks, std::chrono::seconds after) {
  std::filesystem::create_directories(folder);
  const std::string command = std::string("exec ") + ATTNBENCH_PROGRAM +
                              " fsdp --transport mpi --world-size 3 --deadline 1s --model tiny --batch 1 --seq-len 16 "
                              "--steps 100000 --out " +
                              folder + "/rows >" + folder + "/out 2>" + folder + "/err";
  const pid_t program = fork();
  if (program == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  for (int i = 0; i < 1500 && ranks.size() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ranks = ranks_below(program);
  }
  std::this_thread::sleep_for(after);
  EXPECT_EQ(ranks.size(), 3u);
  if (ranks.size() == 3) kill(signal == SIGINT ? program : ranks[1], signal);
  int status = 0;
  waitpid(program, &status, 0);
  const auto text = [&](const char* name) {
    std::ifstream file(folder + name);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text("/out"), text("/err")};
}

/// The same when they train: on a busy machine that takes them longer, and the signal says so.
Outcome disturbed_run(int signal, const std::string& folder, std::vector<pid_t>& ranks) {
  Outcome run;
  for (const int after : {2, 8, 30}) {
    std::filesystem::remove_all(folder);
    ranks.clear();
    run = disturb(signal, folder, ranks, std::chrono::seconds(after));
    if (run.err.find("before its first collective") == std::string::npos) break;
  }
  return run;
}

TEST_F(Fsdp, AKilledOrStoppedRankEndsTheRunWithThreeAndLeavesNobody) {
  NEEDS_MPI();
  for (const int signal : {SIGKILL, SIGSTOP}) {
    std::vector<pid_t> ranks;
    const Outcome run = disturbed_run(signal, out_, ranks);
    EXPECT_EQ(run.code, 3) << run.out << run.err;
    EXPECT_THAT(run.err, testing::ContainsRegex("(all-gather|reduce-scatter|exchange) of "));
    // Stopped anywhere: it may have come to the collective already.
    EXPECT_THAT(run.err,
                testing::ContainsRegex(signal == SIGKILL ? "rank 1 .*died" : "rank 1 (did not come to|came to) the "));
    for (const pid_t rank : ranks) EXPECT_NE(kill(rank, 0), 0) << "process " << rank << " is left";
    const auto document = reports::load_rows(out_ + "/rows");
    ASSERT_TRUE(document);
    EXPECT_EQ(document->rows[0].status, "failed");
  }
}

TEST_F(Fsdp, WhatWouldNotFitIsARowAndIsNotTried) {
  const Outcome run = run_program("fsdp --transport local --world-size 1,64 --model 10b --layers 400 --out " + out_);
  EXPECT_EQ(run.code, 0) << run.err;
  const std::vector<reports::Row> found = rows();
  ASSERT_EQ(found.size(), 2u);
  for (const reports::Row& row : found) {
    EXPECT_EQ(row.status, "oom_predicted");
    EXPECT_THAT(row.reason, HasSubstr("are free; try a smaller --model"));
    EXPECT_EQ(row.transport, "local");
    EXPECT_GT(row.predicted_bytes.value_or(0), 0);
  }
  // A rank of 64 keeps less than the only one.
  EXPECT_LT(*found[1].predicted_bytes, *found[0].predicted_bytes);
}

TEST_F(Fsdp, ADryRunSaysWhatARankNeedsAndRunsNothing) {
  const std::string arguments = std::string("fsdp --transport local --world-size 2 --out ") + out_ + kSmall;
  const Outcome dry = run_program(arguments + "--dry-run");
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("of a rank"));
  EXPECT_FALSE(std::filesystem::exists(out_));
  ASSERT_EQ(run_program(arguments).code, 0);
  const std::vector<reports::Row> found = rows();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(dry.out, HasSubstr(base::format_bytes(static_cast<double>(*found[0].predicted_bytes))));
}

TEST_F(Fsdp, SizesThatCannotBeCountedAreRefused) {
  for (const char* sizes : {"--batch 16M --seq-len 1k", "--layers 1M", "--d-model 16M --vocab 100000000"}) {
    const Outcome run = run_program(std::string("fsdp --out ") + out_ + " " + sizes);
    EXPECT_EQ(run.code, 2) << sizes << run.err;
    EXPECT_THAT(run.err, HasSubstr("not tried")) << sizes;
  }
}

TEST_F(Fsdp, AnOldFolderIsRefusedWithoutAdviceThatFsdpDoesNotTake) {
  std::filesystem::create_directory(out_);
  const Outcome run = run_program(std::string("fsdp --out ") + out_ + kSmall);
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("exists already; name another folder"));
  EXPECT_THAT(run.err, Not(HasSubstr("--resume")));
}

TEST_F(Fsdp, UnderMpiexecItTakesTheWorldThatIsThere) {
  NEEDS_MPI();
  const std::string command = std::string(
                                  "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpiexec "
                                  "--oversubscribe -np 2 ") +
                              ATTNBENCH_PROGRAM + " fsdp --strategy fsdp,ddp --out " + out_ + kSmall + " >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
  const auto all = rows();
  ASSERT_EQ(all.size(), 2u) << "one rank writes, a row for each strategy";
  for (const reports::Row& row : all) {
    EXPECT_EQ(row.status, "ok");
    EXPECT_EQ(row.world_size, 2);
    EXPECT_EQ(row.transport, "mpi");
  }
}

TEST_F(Fsdp, AnInterruptKeepsTheRowsAndLeavesNobody) {
  NEEDS_MPI();
  std::vector<pid_t> ranks;
  const Outcome run = disturbed_run(SIGINT, out_, ranks);
  EXPECT_EQ(run.code, 130) << run.out << run.err;
  for (const pid_t rank : ranks) EXPECT_NE(kill(rank, 0), 0) << "process " << rank << " is left";
  const auto document = reports::load_rows(out_ + "/rows");
  ASSERT_TRUE(document);
  EXPECT_EQ(document->rows[0].status, "interrupted");
}

TEST_F(Fsdp, RefusalsSayWhatToType) {
  const auto refusal = [](const std::string& arguments, const std::string& environment = "") {
    const Outcome run = run_program("fsdp " + arguments, environment);
    return std::to_string(run.code) + " " + run.err;
  };
  // Without the header when configuring; without the library; with both, but without GPUs to bring together.
  EXPECT_THAT(refusal("--transport nccl"),
              AnyOf(HasSubstr("4 error: this build has no NCCL transport"), HasSubstr("4 error: --transport nccl: "),
                    HasSubstr("2 error: --transport nccl brings GPUs together: add --device cuda")));
  EXPECT_THAT(refusal("--device tpu"), HasSubstr("\"tpu\" trains no model; take cpu, cuda or cuda:N"));
  EXPECT_THAT(refusal("--model huge"), HasSubstr("2 error: "));
  EXPECT_THAT(refusal("--strategy fspd"), HasSubstr("did you mean \"fsdp\"?"));
  EXPECT_THAT(refusal("--link fast"), HasSubstr("LATENCY,BANDWIDTH"));
  EXPECT_THAT(refusal("--heads 3"), HasSubstr("2 error: "));
  EXPECT_THAT(refusal("--kernels naive"), HasSubstr("fsdp has no option --kernels"));
  EXPECT_THAT(refusal("--verify nowhere.safetensors"), HasSubstr("5 error: "));
  EXPECT_THAT(refusal("", "RANK=0 WORLD_SIZE=2"), HasSubstr("4 error: torchrun started this"));
  EXPECT_THAT(refusal("--world-size 3", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2"),
              HasSubstr("2 error: mpiexec started 2 ranks"));
}

TEST_F(Fsdp, WithoutMpiexecTheMessageSaysWhatToInstall) {
  const Outcome run = run_program("fsdp --transport mpi --world-size 2", "PATH=/nowhere");
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, HasSubstr("install OpenMPI"));
}

TEST_F(Fsdp, ItsOptionsComeFromTheEnvironmentToo) {
  const Outcome run = run_program("fsdp --out " + out_ + kSmall, "ATTNBENCH_WORLD_SIZE=1 ATTNBENCH_STRATEGY=ddp");
  EXPECT_EQ(run.code, 0) << run.err;
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows()[0].strategy, "ddp");
}

}  // namespace
}  // namespace attnbench::tests
