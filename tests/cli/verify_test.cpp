// `attnbench verify` as a user runs it: what it checks without being told, and what a signal leaves.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "reports/rows_io.hpp"
#include "tests/cli/program.hpp"

namespace attnbench::tests {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kGolden = ATTNBENCH_SOURCE_DIR "/tests/golden/attention_d16.safetensors";

TEST(Verify, TheMockDeviceIsHeldToItsRightKernelsAlone) {
  const Outcome outcome = run_program("verify " + kGolden + " --device mock");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("9 passed, 0 failed, 0 unsupported"));  // three kernels, three dtypes
  EXPECT_EQ(run_program("verify " + kGolden + " --device mock --kernels incorrect").code, 3);
}

TEST(Verify, AReportOnStandardOutputIsAlone) {
  const Outcome outcome = run_program("verify " + kGolden + " --device mock --kernels flash --json -");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, Not(HasSubstr("passed")));
  EXPECT_THAT(outcome.err, HasSubstr("3 passed"));
}

/// A folder with a file to check and a second one, a pipe that nobody fills: verify waits there until it is closed.
class VerifyInterrupted : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(kGolden, folder_ + "/a.safetensors");
    std::filesystem::copy_file(kGolden, folder_ + "/c.safetensors");
    ASSERT_EQ(mkfifo((folder_ + "/b.safetensors").c_str(), 0600), 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_ = testing::TempDir() + "attnbench_verify_" + std::to_string(getpid());
};

TEST_P(VerifyInterrupted, ASignalKeepsWhatWasChecked) {
  Started program({"verify", folder_, "--device", "mock", "--dtype", "fp32", "--out", folder_ + "/run"},
                  folder_ + "/output.txt");
  int pipe = -1;
  const auto is_at_the_pipe = [&] {
    return (pipe = open((folder_ + "/b.safetensors").c_str(), O_WRONLY | O_NONBLOCK)) >= 0;
  };
  ASSERT_TRUE(program.wait_until(is_at_the_pipe)) << program.output();
  program.send(GetParam());
  close(pipe);
  EXPECT_EQ(program.wait(), 128 + GetParam());
  EXPECT_THAT(program.output(), HasSubstr("interrupted"));
  const auto document = reports::load_rows(folder_ + "/run/rows.jsonl");
  ASSERT_TRUE(document) << document.error().message;
  ASSERT_EQ(document->rows.size(), 3u);  // the three kernels on the first file
  for (const reports::Row& row : document->rows) {
    EXPECT_EQ(row.status, "ok") << row.reason;
    EXPECT_THAT(row.key, HasSubstr("a.safetensors"));
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, VerifyInterrupted, testing::Values(SIGINT, SIGTERM));

}  // namespace
}  // namespace attnbench::tests
