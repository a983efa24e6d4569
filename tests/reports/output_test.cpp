#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "reports/emit.hpp"
#include "sample_rows.hpp"

namespace attnbench::reports {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Output : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/attnbench_output_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }
  fs::path directory_;
};

TEST_F(Output, WritesAllBytesAndLeavesNothingElse) {
  const std::string path = directory_ / "run.csv";
  const std::string bytes("a\0b\r\n", 5);
  ASSERT_TRUE(write_output(path, bytes));
  EXPECT_EQ(file_bytes(path), bytes);
  ASSERT_TRUE(write_output(path, ""));
  EXPECT_EQ(file_bytes(path), "");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Output, FollowsTheMaskForANewFileAndKeepsTheModeOfAnOldOne) {
  const std::string path = directory_ / "run.csv";
  const mode_t before = umask(027);
  ASSERT_TRUE(write_output(path, "x"));
  umask(before);
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0640u);
  ASSERT_EQ(chmod(path.c_str(), 0604), 0);
  ASSERT_TRUE(write_output(path, "y"));
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0604u);
}

TEST_F(Output, ReplacesTheFileBehindALink) {
  std::ofstream(directory_ / "target") << "old";
  fs::create_symlink("target", directory_ / "link");
  ASSERT_TRUE(write_output(directory_ / "link", "new"));
  EXPECT_TRUE(fs::is_symlink(directory_ / "link"));
  EXPECT_EQ(file_bytes(directory_ / "target"), "new");
}

TEST_F(Output, SaysThePathAndTheReason) {
  const auto missing = write_output(directory_ / "none" / "run.csv", "x");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("none/run.csv"), HasSubstr("No such file or directory")));
  const auto directory = write_output(directory_, "x");
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().message, HasSubstr("Is a directory"));
  const auto full = write_output("/dev/full", "x");
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, HasSubstr("/dev/full: No space left on device"));
  EXPECT_EQ(files(), 0u);
}

TEST_F(Output, WritesToADeviceInPlace) {
  ASSERT_TRUE(write_output("/dev/null", "x"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(Output, ADashIsStandardOutput) {
  ::testing::internal::CaptureStdout();
  ASSERT_TRUE(write_output("-", "rows\n"));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "rows\n");
}

}  // namespace
}  // namespace attnbench::reports
