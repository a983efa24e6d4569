// A --config file: what TOML allows is read as written, everything else is refused with its line.
#include "bench/cli/config_file.hpp"

#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>

#include "bench/base/rng.hpp"
#include "bench/cli/parse.hpp"

namespace attnbench::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ConfigFile : public testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }

  base::Result<Command> sweep(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return parse(std::vector<std::string>{"sweep", "--config", path_}, {});
  }

  SweepOptions options(const std::string& text) {
    const auto command = sweep(text);
    EXPECT_TRUE(command) << text << "\n" << command.error().message;
    return command ? std::get<SweepOptions>(*command) : SweepOptions{};
  }

  std::string refusal(const std::string& text) {
    const auto command = sweep(text);
    EXPECT_FALSE(command) << text;
    if (command) return "";
    EXPECT_EQ(command.error().kind, base::ErrorKind::kUsage);
    EXPECT_THAT(command.error().message, HasSubstr(path_));
    return command.error().message;
  }

  std::string path_ = testing::TempDir() + "attnbench_config_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".toml";
};

TEST_F(ConfigFile, WhatTomlAllowsIsReadAsWritten) {
  EXPECT_THAT(options("seq-len = [\n  16, # short\n  32,\n]\n").axes.seq_len, ElementsAre(16, 32));
  EXPECT_THAT(options("seq-len = 1_024\n").axes.seq_len, ElementsAre(1024));
  EXPECT_THAT(options("seq-len = 0x40\n").axes.seq_len, ElementsAre(64));
  EXPECT_THAT(options("seq-len = \"\"\"16\"\"\"\n").axes.seq_len, ElementsAre(16));
  EXPECT_THAT(options("seq-len = '16'").axes.seq_len, ElementsAre(16));
  EXPECT_THAT(options("\xef\xbb\xbfseq-len = 16\r\nbatch = 2\r\n").axes.seq_len, ElementsAre(16));
  EXPECT_THAT(options("sweep = { seq-len = 16, batch = 2 }\n").axes.batch, ElementsAre(2));
  EXPECT_THAT(options("sweep.batch = 2\n").axes.batch, ElementsAre(2));
  EXPECT_EQ(options("scale = 0.1\n").axes.scale, 0.1);
  EXPECT_EQ(options("time-limit = 2.5\n").sampling.time_limit_s, 2.5);
  EXPECT_TRUE(options("dry-run = true\n").dry_run);
  EXPECT_FALSE(options("dry-run = false\n").dry_run);
  EXPECT_THAT(options("causal = [true, false]\n").axes.causal, ElementsAre(true, false));
  EXPECT_THAT(options("").axes.batch, ElementsAre(8));
}

TEST_F(ConfigFile, AnArrayIsTheOptionGivenSeveralTimes) {
  const SweepOptions read = options("exclude = [\"kernel=naive,seq_len=1k\", \"dtype=bf16\"]\n");
  ASSERT_EQ(read.axes.exclude.size(), 2u);  // two rules, not one of three terms
  EXPECT_EQ(read.axes.exclude[0].terms.size(), 2u);
  EXPECT_THAT(refusal("seed = [1, 2]\n"), HasSubstr("line 1: seed takes one value and no array"));
  EXPECT_THAT(refusal("quiet = [true]\n"), HasSubstr("takes one value"));
}

TEST_F(ConfigFile, WhatIsNoTomlIsRefusedWithItsLine) {
  EXPECT_THAT(refusal("batch = 1\nseq-len = [16, 32\n"), HasSubstr("line 2: "));
  EXPECT_THAT(refusal("batch = 1\ndry-run\n"), HasSubstr("line 2: "));
  EXPECT_THAT(refusal("++ = 3\n"), HasSubstr("line 1: "));
  EXPECT_THAT(refusal("batch = 1\nbatch = 2\n"), HasSubstr("line 2: "));
  EXPECT_THAT(refusal("[sweep]\nbatch = 1\n[sweep]\nheads = 2\n"), HasSubstr("line 3: "));
  EXPECT_THAT(refusal("seq-len = 16 32\n"), HasSubstr("line 1: "));
  EXPECT_THAT(refusal("seq-len = \"16\n"), HasSubstr("line 1: "));
  EXPECT_THAT(refusal("seq-len = 16k\n"), HasSubstr("line 1: "));
  EXPECT_THAT(refusal("batch = \xff\n"), HasSubstr("line 1: "));
}

TEST_F(ConfigFile, WhatIsNoValueOfAnOptionIsRefusedWithItsLine) {
  EXPECT_THAT(refusal("batch = 1\nseq-len = []\n"), HasSubstr("line 2: seq-len = [] says nothing"));
  EXPECT_THAT(refusal("seq-len = [[16], [32]]\n"), HasSubstr("line 1: seq-len is an array in an array"));
  EXPECT_THAT(refusal("run-limit = 00:01:00\n"), HasSubstr("line 1: run-limit is a date or a time"));
  EXPECT_THAT(refusal("[[sweep]]\nbatch = 1\n"), HasSubstr("line 1: sweep is a table"));
  EXPECT_THAT(refusal("[sweep.batch]\nx = 1\n"), HasSubstr("line 1: batch is a table"));
  EXPECT_THAT(refusal("\nheads = 0\n"), HasSubstr("line 2: heads: 0 is too small"));
  EXPECT_THAT(refusal("batch = 1.5\n"), HasSubstr("only whole numbers"));
  EXPECT_THAT(refusal("scale = nan\n"), HasSubstr("line 1: scale"));
  EXPECT_THAT(refusal("config = \"other.toml\"\n"), HasSubstr("line 1: unknown key \"config\"; a file does"));
}

TEST_F(ConfigFile, TwoSpellingsOfOneOptionAreRefused) {
  EXPECT_THAT(refusal("seq_len = 1\n\nseq-len = 2\n"), HasSubstr("line 3: seq-len is seq_len of line 1 again"));
  EXPECT_THAT(refusal("[sweep]\nkernels = \"naive\"\nkernel = \"flash\"\n"), HasSubstr("line 3: kernel is kernels"));
  EXPECT_THAT(options("batch = 1\n[sweep]\nbatch = 2\n").axes.batch, ElementsAre(2));  // a section is narrower
}

TEST_F(ConfigFile, WhatIsNoFileIsUnreadable) {
  for (const char* path : {"/no/such/file.toml", "/", "/dev/zero"}) {
    const auto entries = read_config(path);
    ASSERT_FALSE(entries) << path;
    EXPECT_EQ(entries.error().kind, base::ErrorKind::kUnreadable);
    EXPECT_THAT(entries.error().message, HasSubstr(path));
  }
  EXPECT_TRUE(read_config("/dev/null"));
}

TEST_F(ConfigFile, NoiseIsReadOrRefusedAndNothingWorse) {
  const std::string whole = "seq-len = [16, \"1k\"]\nscale = 0.5\n[sweep]\nexclude = ['a=b']\nquiet = true\n";
  const base::Rng rng(5, 1);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    std::string noisy = whole.substr(0, 1 + rng.bits(4 * i) % whole.size());
    noisy[rng.bits(4 * i + 1) % noisy.size()] = static_cast<char>(rng.bits(4 * i + 2));
    std::ofstream(path_, std::ios::binary) << noisy;
    const auto entries = read_config(path_);
    if (entries) continue;
    EXPECT_THAT(entries.error().message, HasSubstr(": line ")) << noisy;
  }
  EXPECT_THAT(refusal("seq-len = " + std::string(100000, '[')), HasSubstr("line 1: "));
}

}  // namespace
}  // namespace attnbench::cli
