// Kernels that take the forward without mask alone: what the suites of whole kernels ask, as far as it applies to them.
#include <limits>

#include "tests/gpu/gpu_case.hpp"

namespace attnbench::kernels {
namespace {

class ForwardOnly : public GpuKernel {
 protected:
  void agrees(const Problem& p, std::uint64_t seed, const GpuOptions& options = {.pass = Pass::kFwd}) {
    EXPECT_TRUE(expect_like_oracle_on_gpu(kernel(), p, random_inputs(p, seed), options)) << "declined";
  }
};

TEST_P(ForwardOnly, EveryLengthTo130Agrees) {
  for (std::int64_t length = 1; length <= 130; ++length) {
    agrees(make_problem(length, length, 64, false, Dtype::kBf16), 1);
    agrees(make_problem(length, 131 - length, 128, false, Dtype::kFp16), 2);
  }
}

TEST_P(ForwardOnly, LongSequencesAndGroupsOfHeadsAgree) {
  for (const std::int64_t dim : {64, 128, 256}) {
    Problem p = make_problem(517, 2111, dim, false, Dtype::kBf16);
    p.heads = 6;
    p.kv_heads = 2;
    agrees(p, 3);
  }
}

TEST_P(ForwardOnly, StridesAgree) {
  for (const Layout layout : {Layout::kDense, Layout::kPadded, Layout::kTransposed}) {
    agrees(make_problem(200, 300, 128, false, Dtype::kBf16), 4, {.pass = Pass::kFwd, .layout = layout});
  }
}

TEST_P(ForwardOnly, EqualHugeLogitsGiveTheMeanOfV) {
  const Problem p = make_problem(70, 200, 64, false, Dtype::kBf16);
  for (const float value : {1000.0f, 133120.0f}) {
    Inputs inputs = random_inputs(p, 5);
    inputs.q.assign(std::vector<float>(inputs.q.values().size(), value));
    inputs.k.assign(std::vector<float>(inputs.k.values().size(), value));
    EXPECT_TRUE(expect_like_oracle_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd}));
  }
}

TEST_P(ForwardOnly, NanInAQueryReachesThatRowAlone) {
  const Problem p = make_problem(150, 150, 64, false, Dtype::kBf16);
  Inputs inputs = random_inputs(p, 6);
  const auto clean = run_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd});
  std::vector<float> q = inputs.q.values();
  q[77 * 64] = std::numeric_limits<float>::quiet_NaN();
  inputs.q.assign(q);
  const auto out = run_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd});
  ASSERT_TRUE(clean && out);
  for (std::size_t i = 0; i < out->o.size(); ++i) {
    if (i / 64 == 77) {
      ASSERT_TRUE(std::isnan(out->o[i])) << i;
    } else {
      ASSERT_EQ(out->o[i], clean->o[i]) << i;
    }
  }
}

TEST_P(ForwardOnly, TwentyRunsAreBitwiseEqual) {
  Problem p = make_problem(1000, 3000, 128, false, Dtype::kBf16);
  p.heads = p.kv_heads = 4;
  const Inputs inputs = random_inputs(p, 7);
  const auto first = run_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd});
  ASSERT_TRUE(first);
  for (int run = 1; run < 20; ++run) {
    const auto next = run_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd});
    ASSERT_TRUE(next);
    EXPECT_EQ(first->o, next->o) << "run " << run;
    EXPECT_EQ(first->lse, next->lse) << "run " << run;
  }
}

TEST_P(ForwardOnly, WhatItDoesNotTakeIsDeclinedByName) {
  const Target target{&gpu()->facts(), 1, false};
  const auto reason = [&](const Problem& p, Pass pass) { return kernel().supports(p, pass, target).value_or(""); };
  const Problem plain = make_problem(64, 64, 64, false, Dtype::kBf16);
  EXPECT_EQ(reason(plain, Pass::kFwd), "");
  EXPECT_EQ(reason(plain, Pass::kBwd), "");
  EXPECT_NE(reason(make_problem(64, 64, 64, true, Dtype::kBf16), Pass::kFwd).find("causal"), std::string::npos);
  EXPECT_NE(reason(make_problem(64, 64, 96, false, Dtype::kBf16), Pass::kFwd).find("96"), std::string::npos);
  EXPECT_NE(reason(make_problem(64, 64, 64, false, Dtype::kFp32), Pass::kFwd).find("fp32"), std::string::npos);
}

ATTNBENCH_GPU_SUITE(ForwardOnly, forward_gpu_kernels());

}  // namespace
}  // namespace attnbench::kernels
