// Words, zips and exclude rules: what is read, and where a mistake is.
#include <gmock/gmock.h>

#include "bench/cli/words.hpp"

namespace attnbench::cli {
namespace {

using kernels::CacheState;
using kernels::Dtype;
using testing::ElementsAre;

TEST(Words, AreReadInOrderWithoutRepeats) {
  EXPECT_THAT(*parse_dtypes("bf16, fp32,bf16"), ElementsAre(Dtype::kBf16, Dtype::kFp32));
  EXPECT_THAT(*parse_causal("off,on,0"), ElementsAre(false, true));
  EXPECT_THAT(*parse_cache("both"), ElementsAre(CacheState::kCold, CacheState::kHot));
  EXPECT_EQ(*parse_switch("yes"), true);
}

TEST(Words, AMistakeHasItsPositionAndTheNearestWord) {
  const auto dtypes = parse_dtypes("fp32,bf61");
  ASSERT_FALSE(dtypes);
  EXPECT_EQ(dtypes.error().position, 5u);
  EXPECT_EQ(dtypes.error().hint, "bf16");
  const auto passes = parse_passes("fwd, backward");
  ASSERT_FALSE(passes);
  EXPECT_EQ(passes.error().position, 5u);
  EXPECT_EQ(passes.error().hint, "one of fwd, bwd, fwd_bwd");
  EXPECT_EQ(parse_passes("fwd,,bwd").error().position, 4u);
  EXPECT_EQ(parse_timing("wall,events").error().position, 4u);
}

TEST(Kernels, TakeAVariantAfterAColonAndKnowTheAliasesOfBlas) {
  EXPECT_THAT(*parse_kernels("naive,cublas,onednn,flash:highway"),
              ElementsAre(KernelChoice{"naive", ""}, KernelChoice{"blas", ""}, KernelChoice{"flash", "highway"}));
  EXPECT_EQ(parse_kernels("naive,flash:").error().position, 6u);
  EXPECT_EQ(parse_kernels(":x").error().position, 0u);
}

TEST(Zip, PairsAxesByEitherSpelling) {
  EXPECT_THAT(*parse_zip("d-model,heads;seq_len,batch"),
              ElementsAre(ElementsAre("d_model", "heads"), ElementsAre("seq_len", "batch")));
  const auto unknown = parse_zip("d_model,haeds");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().position, 8u);
  EXPECT_EQ(unknown.error().hint, "heads");
  EXPECT_EQ(parse_zip("d_model").error().position, 0u);
  EXPECT_EQ(parse_zip("d_model,heads;batch,heads").error().position, 20u);
}

TEST(Exclude, ReadsRulesOfTerms) {
  const auto rules = parse_exclude("kernel=cublas,seq-len=8k:64k;dtype=bf16");
  ASSERT_TRUE(rules);
  ASSERT_EQ(rules->size(), 2u);
  ASSERT_EQ((*rules)[0].terms.size(), 2u);
  EXPECT_EQ((*rules)[0].terms[0].value, "blas");
  EXPECT_EQ((*rules)[0].terms[1].axis, "seq_len");
  EXPECT_EQ((*rules)[0].terms[1].value, "8k:64k");
}

TEST(Exclude, AKernelKeepsItsVariant) {
  EXPECT_EQ((*parse_exclude("kernel=cublas:onednn"))[0].terms[0].value, "blas:onednn");
}

TEST(Exclude, AValueThatNoPointCanHaveIsRefused) {
  EXPECT_EQ(parse_exclude("cache=both").error().position, 6u);
  EXPECT_EQ(parse_exclude("cache=both").error().hint, "one of cold, hot");
  EXPECT_EQ(parse_exclude("cache=hto").error().hint, "hot");
  EXPECT_EQ(parse_exclude("device=nosuch").error().position, 7u);
  EXPECT_EQ(parse_exclude("kernel=naive,device=cdua").error().hint, "cuda");
  EXPECT_EQ(parse_exclude("device=cuda:x").error().position, 11u);
  EXPECT_EQ(parse_exclude("device=cuda:").error().position, 11u);
  EXPECT_EQ(parse_exclude("seq_len=none").error().position, 8u);
  EXPECT_EQ(parse_exclude("seq_len=-1").error().position, 8u);
  for (const char* right : {"cache=cold", "device=cpu", "device=cuda:1", "window=none", "window=-1", "threads=0"}) {
    EXPECT_TRUE(parse_exclude(right)) << right;
  }
}

TEST(Exclude, AMistakeHasItsPosition) {
  EXPECT_EQ(parse_exclude("kernel=naive,seqlen=8k").error().position, 13u);
  EXPECT_EQ(parse_exclude("kernel=naive,seqlen=8k").error().hint, "seq_len");
  EXPECT_EQ(parse_exclude("kernel=naive;seq_len=8q").error().position, 22u);
  EXPECT_EQ(parse_exclude("dtype=fp23").error().position, 6u);
  EXPECT_EQ(parse_exclude("kernel").error().position, 0u);
}

}  // namespace
}  // namespace attnbench::cli
