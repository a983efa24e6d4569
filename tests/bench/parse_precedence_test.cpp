// Flag over environment over config file over default.
#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "bench/cli/option_table.hpp"
#include "bench/cli/parse.hpp"

namespace attnbench::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Precedence : public testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }

  void config(const std::string& text) { std::ofstream(path_) << text; }

  base::Result<Command> run(std::vector<std::string> words, const Environment& environment = {}) {
    words.insert(words.end(), {"--config", path_});
    return parse(words, environment);
  }

  SweepOptions sweep(std::vector<std::string> words = {}, const Environment& environment = {}) {
    words.insert(words.begin(), "sweep");
    const auto command = run(words, environment);
    EXPECT_TRUE(command) << command.error().message;
    return command ? std::get<SweepOptions>(*command) : SweepOptions{};
  }

  std::string path_ = testing::TempDir() + "attnbench_precedence_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".toml";
};

TEST_F(Precedence, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  config("batch = 2\n");
  EXPECT_THAT(sweep({"--batch", "4"}, {{"ATTNBENCH_BATCH", "3"}}).axes.batch, ElementsAre(4));
  EXPECT_THAT(sweep({}, {{"ATTNBENCH_BATCH", "3"}}).axes.batch, ElementsAre(3));
  EXPECT_THAT(sweep().axes.batch, ElementsAre(2));
  config("# nothing\n");
  EXPECT_THAT(sweep().axes.batch, ElementsAre(8));
}

TEST_F(Precedence, EveryOptionHasAVariable) {
  config("");
  for (const OptionSpec& option : option_table()) {
    if (option.apply == nullptr || (option.verbs & verb::kSweep) == 0) continue;
    const auto command = run({"sweep"}, {{variable_of(option.name), "#"}});
    const bool free_text = option.metavar == "DIR" || option.metavar == "FILE" || option.name == "device" ||
                           option.name == "kernels" || option.name == "baseline";
    EXPECT_EQ(command.has_value(), free_text) << option.name;
    const std::string message = command ? variable_of(option.name) : command.error().message;
    EXPECT_THAT(message, HasSubstr(variable_of(option.name)));
  }
}

TEST_F(Precedence, AMistypedVariableIsRefusedWithTheNearest) {
  config("");
  const auto message = [&](const std::string& name, const std::vector<std::string>& words) {
    const auto command = run(words, {{name, "4k"}});
    EXPECT_FALSE(command) << name;
    if (command) return std::string();
    EXPECT_EQ(command.error().kind, base::ErrorKind::kUsage);
    return command.error().message;
  };
  EXPECT_EQ(message("ATTNBENCH_SEQLEN", {"sweep"}),
            "unknown variable ATTNBENCH_SEQLEN; did you mean ATTNBENCH_SEQ_LEN?");
  EXPECT_THAT(message("ATTNBENCH_CUDAA", {"report", "run"}), HasSubstr("did you mean ATTNBENCH_CUDA?"));
  EXPECT_THAT(message("ATTNBENCH_DEVISE", {"list", "kernels"}), HasSubstr("did you mean ATTNBENCH_DEVICE?"));
  EXPECT_THAT(message("ATTNBENCH_XYZZY", {"sweep"}), HasSubstr("see attnbench sweep --help"));
  EXPECT_THAT(message("ATTNBENCH_", {"sweep"}), HasSubstr("unknown variable ATTNBENCH_;"));
  EXPECT_THAT(message("ATTNBENCH_seq_len", {"sweep"}), HasSubstr("did you mean ATTNBENCH_SEQ_LEN?"));
}

TEST_F(Precedence, TwoVariablesOfOneOptionAreRefused) {
  config("");
  const auto command = run({"sweep"}, {{"ATTNBENCH_KERNEL", "naive"}, {"ATTNBENCH_KERNELS", "flash"}});
  ASSERT_FALSE(command);
  EXPECT_THAT(command.error().message, HasSubstr("ATTNBENCH_KERNELS and ATTNBENCH_KERNEL are one option"));
  EXPECT_TRUE(run({"sweep"}, {{"ATTNBENCH_KERNEL", "naive"}, {"ATTNBENCH_KERNELS", ""}}));
}

TEST_F(Precedence, VariablesOfOtherVerbsAndOfTheScriptsAreKnown) {
  config("");
  for (const char* name : {"ATTNBENCH_CSV", "ATTNBENCH_KERNEL", "ATTNBENCH_CUDA", "ATTNBENCH_CMAKE_ARGS",
                           "ATTNBENCH_KERNEL_SET", "ATTNBENCH_GOLDEN", "ATTNBENCH_UPDATE_GOLDEN"}) {
    const auto command = parse(std::vector<std::string>{"list", "kernels"}, {{name, "x"}});
    EXPECT_TRUE(command) << command.error().message;
  }
}

/// The variables of this program that a script reads: $NAME, ${NAME}, environ["NAME"] or environ.get("NAME").
std::set<std::string> variables_in(const std::string& text) {
  std::set<std::string> found;
  for (const std::string before : {"$", "${", "environ[\"", "environ.get(\""}) {
    const std::string start = before + "ATTNBENCH_";
    for (std::size_t at = text.find(start); at != std::string::npos; at = text.find(start, at + 1)) {
      const std::size_t name = at + before.size();
      const std::size_t end = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", name);
      found.insert(text.substr(name, end - name));
    }
  }
  return found;
}

TEST_F(Precedence, EveryVariableThatTheScriptsReadIsKnown) {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(ATTNBENCH_SOURCE_DIR "/scripts")) {
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    found.merge(variables_in(text));
  }
  EXPECT_THAT(found, testing::IsSupersetOf({"ATTNBENCH_CUDA", "ATTNBENCH_CMAKE_ARGS"}));
  for (const std::string& each : found) {
    const auto command = parse(std::vector<std::string>{"doctor"}, {{each, "x"}});
    EXPECT_TRUE(command) << command.error().message;
  }
}

TEST_F(Precedence, HelpAndVersionAnswerWhateverIsAroundThem) {
  for (const char* word : {"--help", "--version", "version"}) {
    EXPECT_TRUE(parse(std::vector<std::string>{word}, {{"ATTNBENCH_SEQLEN", "4k"}})) << word;
  }
}

TEST_F(Precedence, AnEmptyVariableIsNotSetAndSwitchesCanBeTurnedOff) {
  config("quiet = true\ntry-oom = true\n");
  const SweepOptions options = sweep({}, {{"ATTNBENCH_BATCH", ""}, {"ATTNBENCH_QUIET", "0"}});
  EXPECT_THAT(options.axes.batch, ElementsAre(8));
  EXPECT_FALSE(options.outputs.quiet);
  EXPECT_TRUE(options.try_oom);
}

TEST_F(Precedence, AFileTakesArraysStringsAndSections) {
  config(
      "seq-len = [256, \"1k\"]\n"
      "d_model = \"32:64:32\"\n"
      "baseline = \"flash\"\n"
      "[sweep]\n"
      "batch = 1\n"
      "baseline = \"blas\"\n"
      "[report]\n"
      "md = \"-\"\n");
  const SweepOptions options = sweep();
  EXPECT_THAT(options.axes.seq_len, ElementsAre(256, 1024));
  EXPECT_THAT(options.axes.d_model, ElementsAre(32, 64));
  EXPECT_THAT(options.axes.batch, ElementsAre(1));
  EXPECT_EQ(options.baseline, "blas");
  EXPECT_EQ(options.outputs.md, "");
  const auto report = run({"report", "x"});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(std::get<ReportOptions>(*report).baseline, "flash");
  EXPECT_EQ(std::get<ReportOptions>(*report).outputs.md, "-");
}

TEST_F(Precedence, TheFileCanComeFromTheEnvironment) {
  config("batch = 5\n");
  const auto command = parse(std::vector<std::string>{"sweep"}, {{"ATTNBENCH_CONFIG", path_}});
  ASSERT_TRUE(command) << command.error().message;
  EXPECT_THAT(std::get<SweepOptions>(*command).axes.batch, ElementsAre(5));
}

TEST_F(Precedence, UnknownKeysAndSectionsAreErrors) {
  const auto message = [&](const std::string& text) {
    config(text);
    const auto command = run({"sweep"});
    EXPECT_FALSE(command);
    if (command) return std::string();
    EXPECT_EQ(command.error().kind, base::ErrorKind::kUsage);
    return command.error().message;
  };
  EXPECT_THAT(message("seq_length = 4\n"), HasSubstr("unknown key \"seq_length\"; did you mean \"seq-len\"?"));
  EXPECT_THAT(message("zzzzzzzzz = 4\n"), HasSubstr("keys are the options without the dashes"));
  EXPECT_THAT(message("[sweeep]\nbatch = 4\n"), HasSubstr("unknown section [sweeep]; did you mean \"sweep\"?"));
  EXPECT_THAT(message("[report]\nbatch = 4\n"), HasSubstr("unknown key \"batch\" in [report]"));
  EXPECT_THAT(message("batch = \"4:1\"\n"), HasSubstr("batch: the range is reversed"));
}

TEST_F(Precedence, AMissingFileIsUnreadable) {
  const auto command = parse(std::vector<std::string>{"sweep", "--config", "/no/such/file.toml"}, {});
  ASSERT_FALSE(command);
  EXPECT_EQ(command.error().kind, base::ErrorKind::kUnreadable);
}

}  // namespace
}  // namespace attnbench::cli
