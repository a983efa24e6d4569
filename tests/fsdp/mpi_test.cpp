// Ranks as processes: the same bits as threads, and no process left behind whatever goes wrong.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "fsdp/board.hpp"
#include "fsdp/launch.hpp"
#include "kernels/device/cpu_device.hpp"
#include "tests/sanitizers/settings.hpp"
#include "toy.hpp"

namespace attnbench::fsdp {
namespace {

namespace fs = std::filesystem;

/// Whether the process runs (one that is dead but not collected does not).
bool runs(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t state = text.rfind(')');
  return state != std::string::npos && text.substr(state + 2, 1) != "Z";
}

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto ok = check_mpi(); !ok) GTEST_SKIP() << ok.error().message;
    attnbench::tests::ignore_leaks_of_ranks();
    std::string pattern = (fs::temp_directory_path() / "attnbench-mpi-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  void TearDown() override {
    if (!directory_.empty()) fs::remove_all(directory_);
  }

  LaunchSpec spec(int size, double deadline_s, const std::string& fault) const {
    LaunchSpec made;
    made.command = {ATTNBENCH_WORKER, directory_, std::to_string(deadline_s), fault};
    made.size = size;
    made.directory = directory_;
    return made;
  }

  /// Nobody of the world is left.
  void expect_nobody(int size) const {
    const auto board = Board::open(directory_ + "/board");
    ASSERT_TRUE(board);
    for (int rank = 0; rank < size; ++rank) {
      const int pid = (*board)->status(rank).pid;
      EXPECT_TRUE(pid == 0 || kill(pid, 0) != 0) << "rank " << rank << " is left as process " << pid;
    }
  }

  std::string failure_of(const std::string& fault, int size, double deadline_s) {
    const auto begin = Clock::now();
    const auto outcome = launch_ranks(spec(size, deadline_s, fault));
    EXPECT_TRUE(outcome);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
    expect_nobody(size);
    return outcome ? outcome->failure : outcome.error().message;
  }

  std::string directory_;
};

/// Weights of the toy after the worker's four steps, trained on threads.
std::map<std::string, std::vector<float>> trained_on_threads(int size) {
  std::map<std::string, std::vector<float>> weights;
  const Model model = tests::toy_model();
  const Layout layout = make_layout(model, 1, false).value();
  for (const Unit& unit : layout.units) {
    for (const Placement& param : unit.params) {
      weights[param.spec.name].resize(static_cast<std::size_t>(param.elements));
    }
  }
  constexpr TokenShape kShape{2, 5};
  tests::expect_world(size, {}, [&](int rank, Communicator& communicator) -> base::Result<void> {
    kernels::CpuDevice device(1);
    auto engine = Engine::make(model, kShape, {}, device, communicator);
    if (!engine) return tl::unexpected(engine.error());
    if (auto ok = (*engine)->initialize(1); !ok) return ok;
    for (std::uint64_t step = 0; step < 4; ++step) {
      const auto tokens = tests::random_tokens(step, kShape.batch * size, kShape.seq, 11);
      const TokenBatch batch = tokens.rows(rank * kShape.batch, kShape);
      const auto report = (*engine)->step({&batch, 1});
      if (!report) return tl::unexpected(report.error());
    }
    for (auto& [name, values] : weights) {
      if (auto ok = tests::write_kept(**engine, name, Engine::Kept::kWeight, values); !ok) return ok;
    }
    return {};
  });
  return weights;
}

TEST_F(Mpi, ProcessesTrainToTheBitsOfThreads) {
  for (const int size : {1, 2, 3, 4}) {
    const auto outcome = launch_ranks(spec(size, 30, "none"));
    ASSERT_TRUE(outcome) << outcome.error().message;
    ASSERT_EQ(outcome->failure, "");
    const auto expected = trained_on_threads(size);
    std::map<std::string, std::vector<float>> weights;
    for (const auto& [name, values] : expected) weights[name].resize(values.size());
    for (int rank = 0; rank < size; ++rank) {
      std::ifstream file(directory_ + "/weights." + std::to_string(rank));
      for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        std::size_t at = 0;
        words >> name >> at;
        for (float value = 0; words >> value;) weights.at(name).at(at++) = value;
      }
    }
    EXPECT_EQ(weights, expected) << size << " ranks";
    fs::remove(directory_ + "/board");
  }
}

TEST_F(Mpi, AKilledRankEndsTheRunNamingItAndItsCollective) {
  const std::string failure = failure_of("kill", 3, 10);
  EXPECT_NE(failure.find("rank 1 (process "), std::string::npos) << failure;
  EXPECT_NE(failure.find("died"), std::string::npos) << failure;
  EXPECT_TRUE(failure.find("all-gather of ") != std::string::npos ||
              failure.find("reduce-scatter of ") != std::string::npos)
      << failure;
}

TEST_F(Mpi, ASleepingRankEndsTheRunWithinTheDeadline) {
  const std::string failure = failure_of("sleep", 3, 1);
  EXPECT_NE(failure.find("rank 1 did not come to the all-gather of embedding"), std::string::npos) << failure;
}

TEST_F(Mpi, AStoppedRankEndsTheRunWithinTheDeadline) {
  const std::string failure = failure_of("stop", 2, 1);
  EXPECT_NE(failure.find("rank 1 did not come to the all-gather of embedding"), std::string::npos) << failure;
}

TEST_F(Mpi, ARankThatLeavesEarlyEndsTheRun) {
  const std::string failure = failure_of("exit", 2, 1);
  EXPECT_NE(failure.find("rank 1"), std::string::npos) << failure;
}

TEST_F(Mpi, ARankWithAnotherModelEndsTheRunNamingTheLayer) {
  const std::string failure = failure_of("model", 2, 10);
  EXPECT_NE(failure.find("do not run the same program"), std::string::npos) << failure;
  EXPECT_NE(failure.find("linear1"), std::string::npos) << failure;
}

TEST_F(Mpi, RanksDieWithTheProcessThatStartedThem) {
  const pid_t child = fork();
  if (child == 0) {
    (void)launch_ranks(spec(2, 60, "sleep"));
    _exit(0);
  }
  std::vector<int> pids;
  for (int i = 0; i < 500 && pids.size() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pids.clear();
    const auto board = Board::open(directory_ + "/board");
    for (int rank = 0; board && rank < 2; ++rank) {
      if (!(*board)->status(rank).doing.empty()) pids.push_back((*board)->status(rank).pid);
    }
  }
  ASSERT_EQ(pids.size(), 2u) << "both ranks train before the one falls asleep";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (const int pid : pids) {
    bool gone = false;
    for (int i = 0; i < 500 && !gone; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gone = !runs(pid);
    }
    EXPECT_TRUE(gone) << "process " << pid << " outlives the one that started it";
  }
}

}  // namespace
}  // namespace attnbench::fsdp
