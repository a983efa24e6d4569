// compare, noise and --slow-down through the program, on the mock device, whose times are exact.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/cli/sweep_case.hpp"

namespace attnbench::tests {
namespace {

using testing::HasSubstr;

class CompareRuns : public Sweep {
 protected:
  Outcome sweep_to(const std::string& name, const std::string& arguments = "") const {
    return run_program("sweep --device mock --quiet --min-samples 20 --max-samples 20 --max-noise 0.0001 --out " +
                       out_ + "/" + name + kSmall + arguments);
  }
  Outcome compare(const std::string& arguments) const {
    return run_program("compare " + out_ + "/a " + out_ + "/b " + arguments);
  }
};

TEST_F(CompareRuns, APlantedSlowDownIsCaughtAndNothingElse) {
  ASSERT_EQ(sweep_to("a").code, 0);
  ASSERT_EQ(sweep_to("b", "--slow-down flash:10%").code, 0);
  const Outcome outcome = compare("--gate time_us_median:+5% --gate peak_bytes:+2% --gate tflops:-5%");
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 regressed, 7 same"));
  EXPECT_THAT(outcome.out, HasSubstr("+10.0 %"));
  const auto document = reports::load_rows(out_ + "/b");
  ASSERT_TRUE(document);
  for (const Row& row : document->rows) {
    EXPECT_EQ(row.note.find("slowed down by 10 % on purpose") != std::string::npos, row.kernel == "flash") << row.key;
  }
  EXPECT_EQ(compare("--gate time_us_median:+12%").code, 0);
  EXPECT_EQ(run_program("compare " + out_ + "/b " + out_ + "/b").code, 0);
}

TEST_F(CompareRuns, ADelayIsRefusedWhereItMeansNothing) {
  EXPECT_THAT(sweep_to("a", "--slow-down flahs:10%").err, HasSubstr("did you mean \"flash\"?"));
  for (const char* rule : {"flash", "flash:", "flash:0", "flash:x", ":10", "flash:-5%", "flash:nan"}) {
    const Outcome outcome = sweep_to("a", std::string("--slow-down ") + rule);
    EXPECT_EQ(outcome.code, 2) << rule;
    EXPECT_THAT(outcome.err, HasSubstr("--slow-down: "));
  }
  EXPECT_EQ(sweep_to("a", "--slow-down flash:nosuch:10%").code, 2);
}

TEST_F(CompareRuns, OneSweepFeedsEveryTool) {
  std::filesystem::create_directory(out_);
  const Outcome outcome =
      sweep_to("a", "--emit googlecpp=" + out_ + "/g.json,bmf=" + out_ + "/b.json --emit junit=" + out_ +
                        "/r.xml,step-summary=" + out_ + "/s.md,annotations=-");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");  // nothing went wrong, so there is no annotation
  for (const char* file : {"/g.json", "/b.json", "/r.xml", "/s.md"}) {
    EXPECT_TRUE(std::filesystem::exists(out_ + file)) << file;
  }
  EXPECT_EQ(run_program("report " + out_ + "/a --emit nvbench=" + out_ + "/n.json,codspeed=" + out_ + "/c.json").code,
            0);
  EXPECT_THAT(sweep_to("b", "--emit junit=" + out_ + "/x,bmf=" + out_ + "/./x").err, HasSubstr("both write to"));
}

TEST_F(CompareRuns, NoiseWritesAFloorForEveryRow) {
  const std::string file = out_ + "/noise.json";
  std::filesystem::create_directory(out_);
  const Outcome outcome = run_program("noise --device mock --launches 2 --min-samples 5 --max-samples 5 --write " +
                                      file + " --out " + out_ + "/launches" + kSmall);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("noise floors of 3 rows over 2 launches"));
  EXPECT_TRUE(std::filesystem::exists(out_ + "/launches/launch-02/rows.jsonl"));
  ASSERT_EQ(sweep_to("a").code, 0);
  EXPECT_EQ(run_program("compare " + out_ + "/a " + out_ + "/launches --noise " + file).code, 0);
  EXPECT_EQ(run_program("noise --device mock --launches 1").code, 2);
  EXPECT_EQ(run_program("noise --device mock --kernels flahs").code, 2);
  EXPECT_THAT(run_program("noise --device mock --out " + out_).err, HasSubstr("exists already"));
}

TEST_F(CompareRuns, WordsThatAreMissingOrLeftOverAreNamed) {
  EXPECT_THAT(run_program("compare").err, HasSubstr("compare needs BASE"));
  EXPECT_THAT(run_program("compare a").err, HasSubstr("compare needs NEW: another run of that plan"));
  EXPECT_THAT(run_program("compare a b c").err, HasSubstr("compare takes two words: \"c\" is left over"));
  EXPECT_THAT(run_program("compare --self-test a b").err, HasSubstr("--self-test takes one run; leave b out"));
  EXPECT_EQ(run_program("compare --self-test").code, 0);
  EXPECT_EQ(run_program("compare no such").code, 5);
  EXPECT_THAT(run_program("compare a b --gate tim_us_median:+5%").err, HasSubstr("did you mean time_us_median?"));
  EXPECT_THAT(run_program("compare a b", "ATTNBENCH_GATE=tflops:5").err,
              HasSubstr("ATTNBENCH_GATE tflops:5: after the metric comes a sign"));
  EXPECT_THAT(run_program("compare a b --allow drivr").err, HasSubstr("did you mean \"driver\"?"));
  for (const char* flags : {"--alpha 0", "--alpha 1", "--alpha nan", "--floor -1", "--gate ,", "--emit junt=x",
                            "--emit junit", "--emit junit=", "--noise ''"}) {
    EXPECT_EQ(run_program(std::string("compare a b ") + flags).code, 2) << flags;
  }
}

}  // namespace
}  // namespace attnbench::tests
