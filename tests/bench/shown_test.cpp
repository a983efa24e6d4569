// Defaults in the help: what is printed is what the fields of the options hold.
#include "bench/cli/shown.hpp"

#include <gmock/gmock.h>

#include <map>
#include <string>

#include "bench/cli/option_table.hpp"
#include "bench/cli/parse.hpp"

namespace attnbench::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string help(const std::string& verb) {
  const auto command = parse(std::vector<std::string>{verb, "--help"}, {});
  EXPECT_TRUE(command) << command.error().message;
  return command ? std::get<Printout>(*command).text : "";
}

TEST(Shown, TheHelpOfASweepHasTheValuesOfTheOptions) {
  const std::string text = help("sweep");
  for (const char* words :
       {"heads * head_dim [16,32,64]", "[256,1k,4k]", "[as many as queries]", "sequences [8]", "[fp32; on CUDA",
        "on, off [on]", "or none [none]", "[1 / sqrt(head_dim)]", "[fwd,bwd]", "[cold]", "[auto: cuda if there is one",
        "of the inputs [1]", "[3]", "[10000]", "[0.2s]", "[3s]", "[no limit]", "[burst]", "[naive]"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
}

TEST(Shown, EachVerbHasItsOwnDefaults) {
  EXPECT_THAT(help("verify"), HasSubstr("[fp32,bf16,fp16]"));
  EXPECT_THAT(help("verify"), HasSubstr("where rows.jsonl goes [nowhere]"));
  EXPECT_THAT(help("list"), HasSubstr("[auto: cpu, and every cuda there is]"));
}

TEST(Shown, NoSentenceCarriesADefaultOfItsOwn) {
  for (const OptionSpec& option : option_table()) {
    if (option.verbs == verb::kFsdp) continue;  // those are still written by hand
    EXPECT_THAT(std::string(option.help), Not(HasSubstr("["))) << option.name;
  }
}

TEST(Shown, WhatIsShownFollowsTheField) {
  const std::map<std::string, std::string, std::less<>> others{
      {"d-model", "48,2k"},   {"seq-len", "3,5"},    {"seq-len-k", "7"},     {"batch", "2"},
      {"heads", "4"},         {"kv-heads", "2"},     {"dtype", "fp16"},      {"causal", "off,on"},
      {"window", "128"},      {"scale", "0.5"},      {"pass", "fwd_bwd"},    {"kernels", "flash:x,naive"},
      {"threads", "1,2"},     {"cache", "hot,cold"}, {"device", "cpu"},      {"seed", "9"},
      {"timing", "wall"},     {"min-samples", "5"},  {"max-samples", "6"},   {"min-time", "0.5s"},
      {"time-limit", "7s"},   {"max-noise", "2.5"},  {"run-limit", "60s"},   {"thermal", "sustained"},
      {"gate", "tflops:-2%"}, {"alpha", "0.01"},     {"floor", "3"},         {"launches", "5"},
      {"write", "n.json"},    {"baseline", "blas"},  {"out", "some/folder"}, {"color", "never"}};
  std::size_t shown = 0;
  for (const OptionSpec& option : option_table()) {
    if (option.shown == nullptr) continue;
    ++shown;
    const auto other = others.find(option.name);
    ASSERT_NE(other, others.end()) << option.name << " shows a default, and this test has no other value for it";
    SweepOptions options;
    EXPECT_NE(option.shown(options, verb::kSweep), other->second) << option.name;
    const auto ok = option.apply(options, {other->second, "test"});
    ASSERT_TRUE(ok) << ok.error().message;
    EXPECT_EQ(option.shown(options, verb::kSweep), other->second);
  }
  EXPECT_EQ(shown, others.size());
}

}  // namespace
}  // namespace attnbench::cli
