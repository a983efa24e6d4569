// `attnbench verify` as a user runs it: what it checks without being told, and what a signal leaves.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

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
  for (const auto& [option, first] : {std::pair{"--json -", '{'}, {"--csv -", 's'}, {"--md -", '#'}}) {
    const Outcome outcome = run_program("verify " + kGolden + " --device mock --kernels flash " + option);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.out.front(), first) << option;
    EXPECT_THAT(outcome.out, Not(HasSubstr("passed")));
    EXPECT_THAT(outcome.err, HasSubstr("3 passed"));
  }
}

TEST(Verify, QuietSaysNothingButWhatFailed) {
  const Outcome right = run_program("verify " + kGolden + " --device mock --quiet");
  EXPECT_EQ(right.code, 0);
  EXPECT_EQ(right.out + right.err, "");
  const Outcome wrong = run_program("verify " + kGolden + " --device mock --kernels incorrect --dtype fp32 --quiet");
  EXPECT_EQ(wrong.code, 3);
  EXPECT_EQ(wrong.out, "");
  EXPECT_THAT(wrong.err, HasSubstr("1 failed"));
}

TEST(Verify, ItsRowsCanBeReported) {
  const std::string out = testing::TempDir() + "attnbench_verify_rows_" + std::to_string(getpid());
  EXPECT_EQ(run_program("verify " + kGolden + " --device mock --quiet --out " + out).code, 0);
  const Outcome report = run_program("report " + out + " --csv -");
  std::filesystem::remove_all(out);
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("verify/attention_d16.safetensors/flash:mock/fp32/mock"));
}

/// A folder of its own for files that a test makes.
class VerifyFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_ = testing::TempDir() + "attnbench_verify_files_" + std::to_string(getpid());
};

/// The golden file with o, dq, dk and dv zeroed and one lse of three million.
std::string damaged() {
  std::ifstream file(kGolden, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  for (const char* name : {"o", "dq", "dk", "dv"}) {
    const auto begin = header[name]["data_offsets"][0].get<std::size_t>();
    const auto end = header[name]["data_offsets"][1].get<std::size_t>();
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(8 + length + begin), end - begin, '\0');
  }
  const float lse = 3e6f;
  std::memcpy(&bytes[8 + length + header["lse"]["data_offsets"][0].get<std::size_t>()], &lse, sizeof(lse));
  return bytes;
}

TEST_F(VerifyFolder, OneDamagedNumberDoesNotSwitchTheOtherChecksOff) {
  std::ofstream(folder_ + "/a.safetensors", std::ios::binary) << damaged();
  const Outcome outcome = run_program("verify " + folder_ + " --device cpu --dtype fp32");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("0 passed, 3 failed"));
  for (const char* tensor : {"fp32 o:", "fp32 lse:", "fp32 dq:", "fp32 dk:", "fp32 dv:"}) {
    EXPECT_THAT(outcome.out, HasSubstr(tensor));
  }
  EXPECT_THAT(outcome.out, HasSubstr("2e-05 is accepted"));
}

TEST_F(VerifyFolder, SaysWhatTheBoundIs) {
  const Outcome outcome = run_program("verify " + kGolden + " --device mock --kernels flash --dtype fp32");
  EXPECT_THAT(outcome.out, HasSubstr("16 units in the last place (fp32) of the largest |lse|"));
  EXPECT_THAT(outcome.out, HasSubstr("up to 0.001"));
}

TEST_F(VerifyFolder, HavingCheckedNothingIsNotAPass) {
  const std::string header = R"({"tokens":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  std::ofstream(folder_ + "/training.safetensors", std::ios::binary) << bytes << header << "1234";
  const Outcome training = run_program("verify " + folder_ + " --device mock --out " + folder_ + "/run");
  EXPECT_EQ(training.code, 5);
  EXPECT_THAT(training.err, HasSubstr("nothing was checked: no file of"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/run"));  // and may be named again
  const Outcome declined = run_program("verify " + kGolden + " --device mock --kernels unsupported");
  EXPECT_EQ(declined.code, 2);
  EXPECT_THAT(declined.err, HasSubstr("nothing was checked: every kernel declines"));
}

TEST_F(VerifyFolder, AnOldFolderIsRefusedBeforeAnyWork) {
  const Outcome outcome = run_program("verify " + kGolden + " --device mock --out " + folder_);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("exists already"));
}

/// A folder with a file to check and a second one, a pipe that nobody fills: verify waits there until it is closed.
class VerifyAtAPipe : public VerifyFolder {
 protected:
  void SetUp() override {
    VerifyFolder::SetUp();
    std::filesystem::copy_file(kGolden, folder_ + "/a.safetensors");
    std::filesystem::copy_file(kGolden, folder_ + "/c.safetensors");
    ASSERT_EQ(mkfifo((folder_ + "/b.safetensors").c_str(), 0600), 0);
  }
};

class VerifyInterrupted : public VerifyAtAPipe, public testing::WithParamInterface<int> {};

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

TEST_F(VerifyAtAPipe, AKillLosesNoRowThatWasReached) {
  Started program({"verify", folder_, "--device", "mock", "--dtype", "fp32", "--out", folder_ + "/run"},
                  folder_ + "/output.txt");
  int pipe = -1;
  const auto is_at_the_pipe = [&] {
    return (pipe = open((folder_ + "/b.safetensors").c_str(), O_WRONLY | O_NONBLOCK)) >= 0;
  };
  ASSERT_TRUE(program.wait_until(is_at_the_pipe)) << program.output();
  program.send(SIGKILL);
  close(pipe);
  EXPECT_EQ(program.wait(), 1000 + SIGKILL);
  const auto document = reports::load_rows(folder_ + "/run/rows.jsonl");
  ASSERT_TRUE(document) << document.error().message;
  EXPECT_EQ(document->rows.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Signals, VerifyInterrupted, testing::Values(SIGINT, SIGTERM, SIGHUP));

}  // namespace
}  // namespace attnbench::tests
