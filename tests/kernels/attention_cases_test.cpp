// Inputs on which other attention kernels went wrong, one test per case; the numbers are those of the case list.
//
// Cases that no CPU kernel of this program can meet, and why:
//   T24, T26, T27, T29       variable-length batches: the problem has one length for all (T02's lengths are tested)
//   T07, T09                 boolean and float masks: the problem has causal and window only
//   T46                      softcap: no such field
//   T47, T48                 CUDA graphs, streams and several devices: tested with the CUDA kernels
//   T51                      dropout: no such field
//   T56                      fp8: not a dtype of the problem
//   T57                      bulk copies and racecheck: CUDA only
// T15, T52 and T59 are in lengths_test.cpp, the large ones (T17, T18, T19, T21, T22) in large_test.cpp.
#include <cmath>
#include <limits>

#include "kernel_case.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Every element of a tensor the same.
void fill_all(HostTensor& tensor, float value) {
  tensor.fill([value](const Index4&) { return value; });
}

double mean_of_column(const HostTensor& tensor, std::int64_t d) {
  double sum = 0;
  for (std::int64_t s = 0; s < tensor.view().extent[2]; ++s) sum += static_cast<double>(tensor.get({0, 0, s, d}));
  return sum / static_cast<double>(tensor.view().extent[2]);
}

bool finite(const std::vector<float>& values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

class Cases : public CpuKernel {
 protected:
  /// Queries with equal logits: o is the mean of v.
  void expect_mean_of_values(const Problem& p, const Inputs& inputs, const Outputs& out, double bound) {
    for (std::int64_t i = 0; i < p.seq_q; ++i) {
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        const double o = static_cast<double>(out.o[static_cast<std::size_t>(i * p.head_dim + d)]);
        ASSERT_NEAR(o, mean_of_column(inputs.v, d), bound) << "row " << i << " column " << d;
      }
    }
  }
};

TEST_P(Cases, T01CausalWithFewerKeysThanQueriesIsAlignedBottomRight) {
  const Problem p = make_problem(5, 2, 16, true);
  const Inputs inputs = random_inputs(p, 1);
  expect_like_oracle(kernel(), p, inputs);
  const Outputs out = run_kernel(kernel(), p, inputs);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(out.lse[i], -kInf);
    for (std::size_t d = 0; d < 16; ++d) {
      EXPECT_EQ(out.o[i * 16 + d], 0.0f);
      EXPECT_EQ(out.dq[i * 16 + d], 0.0f);
    }
  }
  EXPECT_TRUE(std::isfinite(out.lse[3]));
}

TEST_P(Cases, T02ManyCausalQueriesOfOneKeyHaveGradientsOfZeroButForTheLast) {
  const Problem p = make_problem(76, 1, 64, true);
  const Inputs inputs = random_inputs(p, 24);
  expect_like_oracle(kernel(), p, inputs);
  const Outputs out = run_kernel(kernel(), p, inputs);
  for (std::size_t i = 0; i < 75 * 64; ++i) ASSERT_EQ(out.dq[i], 0.0f) << i;
}

TEST_P(Cases, T03NoKeyGivesZeroAndMinusInfinity) {
  for (const bool causal : {false, true}) {
    const Problem p = make_problem(7, 0, 16, causal);
    const Outputs out = run_kernel(kernel(), p, random_inputs(p, 1));
    for (const float value : out.lse) EXPECT_EQ(value, -kInf);
    for (const float value : out.o) EXPECT_EQ(value, 0.0f);
    for (const float value : out.dq) EXPECT_EQ(value, 0.0f);
  }
}

TEST_P(Cases, T04LseOfAnEmptyRowIsMinusInfinityNotALargeNumber) {
  const Problem p = make_problem(130, 67, 32, true);
  const Outputs out = run_kernel(kernel(), p, random_inputs(p, 2));
  for (std::size_t i = 0; i < 130; ++i) EXPECT_EQ(out.lse[i] == -kInf, i < 63) << i;
}

TEST_P(Cases, T06AVeryLowScoreStillOutweighsMaskedKeys) {
  // The only visible key of row 0 scores -20000; masked ones would score +20000.
  const Problem p = make_problem(2, 2, 1, true);
  Inputs inputs = random_inputs(p, 1);
  fill_all(inputs.q, 1.0f);
  inputs.k.set({0, 0, 0, 0}, -20000.0f);
  inputs.k.set({0, 0, 1, 0}, 20000.0f);
  const Outputs out = run_kernel(kernel(), p, inputs);
  EXPECT_EQ(out.o[0], inputs.v.get({0, 0, 0, 0}));
  EXPECT_EQ(out.lse[0], -20000.0f);
}

TEST_P(Cases, T10HugeEqualLogitsGiveTheMeanOfValues) {
  const Problem p = make_problem(24, 48, 64, false, Dtype::kBf16);
  Inputs inputs = random_inputs(p, 3);
  fill_all(inputs.q, 133120.0f);
  fill_all(inputs.k, 133120.0f);
  const Outputs out = run_kernel(kernel(), p, inputs);
  expect_mean_of_values(p, inputs, out, 2e-2);
  for (const auto* gradient : {&out.dq, &out.dk, &out.dv}) EXPECT_TRUE(finite(*gradient));
}

TEST_P(Cases, T10LogitsBeyondFp32GiveTheMeanOfValues) {
  const Problem p = make_problem(20, 40, 16);
  Inputs inputs = random_inputs(p, 3);
  fill_all(inputs.q, 1e25f);
  fill_all(inputs.k, 1e25f);
  RunOptions options;
  options.pass = Pass::kFwd;
  const Outputs out = run_kernel(kernel(), p, inputs, options);
  expect_mean_of_values(p, inputs, out, 2e-5);
  EXPECT_TRUE(finite(out.lse));
}

TEST_P(Cases, T11EqualLogitsOfAFewHundredKeepDvRight) {
  const Problem p = make_problem(128, 128, 64);
  Inputs inputs = random_inputs(p, 4);
  fill_all(inputs.q, 8.0f);
  fill_all(inputs.k, 8.0f);
  expect_like_oracle(kernel(), p, inputs);
}

TEST_P(Cases, T12LargeInputsAtHeadDim128BackwardStayRight) {
  const Problem p = make_problem(96, 96, 128, true);
  expect_like_oracle(kernel(), p, random_inputs(p, 5, Layout::kDense, 3.0));
}

TEST_P(Cases, T13OneQueryWithVeryNegativeScoresHasFiniteGradients) {
  const Problem p = make_problem(1, 128, 64, false, Dtype::kBf16);
  Inputs inputs = random_inputs(p, 6);
  fill_all(inputs.q, -100.0f);
  // dq is 100 times a sum that cancels: right only with a delta that was never rounded to bf16.
  inputs.k.fill([](const Index4& at) { return 100.0f + static_cast<float>(at[2] % 3); });
  expect_like_oracle(kernel(), p, inputs);
}

TEST_P(Cases, T16OneQueryOfOneKeyHasNoGradientOfQueryAndKey) {
  const Problem p = make_problem(1, 1, 64, true);
  const Inputs inputs = random_inputs(p, 7);
  const Outputs out = run_kernel(kernel(), p, inputs);
  const std::vector<float> v = inputs.v.values();
  const std::vector<float> dout = inputs.dout.values();
  EXPECT_LE(error_of(out.o, {v.begin(), v.end()}), 1e-6);
  EXPECT_LE(error_of(out.dv, {dout.begin(), dout.end()}), 1e-6);
  EXPECT_LE(error_of(out.dq, std::vector<double>(64, 0.0)), 1e-5);
  EXPECT_LE(error_of(out.dk, std::vector<double>(64, 0.0)), 1e-5);
}

TEST_P(Cases, T25EmptyProblemsAreNotLaunched) {
  for (const int empty : {0, 1, 2, 3}) {
    Problem p = make_problem(empty == 0 ? 0 : 3, empty == 1 ? 0 : 4, 8);
    if (empty == 2) p.batch = 0;
    if (empty == 3) p.heads = p.kv_heads = 0;
    const Inputs inputs = random_inputs(p, 10);
    const Outputs out = run_kernel(kernel(), p, inputs);
    for (const auto* gradient : {&out.dk, &out.dv}) {
      for (const float value : *gradient) EXPECT_EQ(value, 0.0f) << "a key that no query sees";
    }
  }
}

TEST_P(Cases, T30AndT32OddHeadDimensionsAreRight) {
  for (const std::int64_t dim : {41, 72, 96}) {
    const Problem p = make_problem(50, 50, dim, true);
    expect_like_oracle(kernel(), p, random_inputs(p, 11));
  }
}

TEST_P(Cases, T30HeadDimensionsAbove256AreDeclinedByName) {
  const Problem p = make_problem(4, 4, 257);
  const CpuDevice device(1);
  const auto reason = kernel().supports(p, Pass::kFwd, {&device.facts(), 1, false});
  ASSERT_TRUE(reason.has_value());
  EXPECT_NE(reason->find("head_dim"), std::string::npos) << *reason;
  EXPECT_NE(reason->find("257"), std::string::npos) << *reason;
}

TEST_P(Cases, T34AndT35StridesDoNotChangeTheResult) {
  Problem p = make_problem(33, 41, 24, true);
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kFp16}) {
    p.dtype = dtype;
    for (const Layout in : {Layout::kDense, Layout::kPadded, Layout::kTransposed}) {
      for (const Layout result : {Layout::kDense, Layout::kPadded, Layout::kTransposed}) {
        RunOptions options;
        options.layout = result;
        expect_like_oracle(kernel(), p, random_inputs(p, 12, in), options);
      }
    }
  }
}

TEST_P(Cases, T36OneOddlyLaidOutTensorIsEnough) {
  const Problem p = make_problem(20, 30, 16);
  for (int odd = 0; odd < 4; ++odd) {
    Inputs inputs = random_inputs(p, 13);
    Inputs transposed = random_inputs(p, 13, Layout::kTransposed);
    HostTensor Inputs::*const members[] = {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::dout};
    inputs.*members[odd] = std::move(transposed.*members[odd]);
    expect_like_oracle(kernel(), p, inputs);
  }
}

TEST_P(Cases, T38AWindowOfEverythingIsCausal) {
  Problem windowed = make_problem(70, 70, 16, true);
  const Inputs inputs = random_inputs(windowed, 14);
  const Outputs causal = run_kernel(kernel(), windowed, inputs);
  for (const std::int64_t window :
       {std::int64_t{69}, std::int64_t{INT64_MAX}}) {  // the latter as "no limit" is written
    windowed.window_left = window;
    const Outputs all = run_kernel(kernel(), windowed, inputs);
    EXPECT_EQ(all.o, causal.o) << window;
    EXPECT_EQ(all.lse, causal.lse) << window;
    EXPECT_EQ(all.dq, causal.dq) << window;
    EXPECT_EQ(all.dk, causal.dk) << window;
    EXPECT_EQ(all.dv, causal.dv) << window;
  }
}

TEST_P(Cases, T39AWindowOfWSeesWPlusOneKeys) {
  // Equal logits and lse = ln(number of visible keys).
  Problem p = make_problem(50, 50, 8, true);
  Inputs inputs = random_inputs(p, 15);
  fill_all(inputs.q, 0.0f);
  for (const std::int64_t window : {0, 1, 7, 16}) {
    p.window_left = window;
    const Outputs out = run_kernel(kernel(), p, inputs);
    for (std::int64_t i = 0; i < 50; ++i) {
      const double seen = static_cast<double>(std::min(i, window) + 1);
      EXPECT_NEAR(static_cast<double>(out.lse[static_cast<std::size_t>(i)]), std::log(seen), 1e-5) << i;
    }
  }
}

TEST_P(Cases, T39WindowsAgreeInBothPasses) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t window : {0, 3, 31, 64, 200}) {
      for (const std::int64_t keys : {60, 90, 130}) {
        Problem p = make_problem(90, keys, 16, causal);
        p.window_left = window;
        expect_like_oracle(kernel(), p, random_inputs(p, 16));
      }
    }
  }
}

TEST_P(Cases, T40AndT41RunsAreBitwiseEqual) {
  Problem p = make_problem(150, 150, 32, true);
  p.heads = 4;
  p.kv_heads = 2;
  const Inputs inputs = random_inputs(p, 17);
  const Outputs first = run_kernel(kernel(), p, inputs);
  for (int run = 0; run < 10; ++run) {
    const Outputs again = run_kernel(kernel(), p, inputs);
    ASSERT_EQ(again.o, first.o);
    ASSERT_EQ(again.lse, first.lse);
    ASSERT_EQ(again.dq, first.dq);
    ASSERT_EQ(again.dk, first.dk);
    ASSERT_EQ(again.dv, first.dv);
  }
}

TEST_P(Cases, T44CausalAndFullDiffer) {
  Problem p = make_problem(40, 40, 16);
  const Inputs inputs = random_inputs(p, 18);
  const Outputs full = run_kernel(kernel(), p, inputs);
  p.causal = true;
  const Outputs causal = run_kernel(kernel(), p, inputs);
  EXPECT_NE(full.o, causal.o);
  EXPECT_NE(full.dq, causal.dq);
  EXPECT_NE(full.dk, causal.dk);
  EXPECT_NE(full.dv, causal.dv);
}

TEST_P(Cases, T45BothPassesAlignACausalOblongAlike) {
  for (const std::int64_t keys : {20, 45, 93}) {
    const Problem p = make_problem(45, keys, 16, true);
    expect_like_oracle(kernel(), p, random_inputs(p, 19));
  }
}

TEST_P(Cases, T49GroupedHeadsReadTheirKeyHeadAndSumItsGradients) {
  for (const std::int64_t kv_heads : {1, 2, 3, 6}) {
    Problem p = make_problem(37, 50, 16, true);
    p.batch = 2;
    p.heads = 6;
    p.kv_heads = kv_heads;
    expect_like_oracle(kernel(), p, random_inputs(p, 20));
  }
}

TEST_P(Cases, T54InputsOfAThousandGiveTheMeanOfValues) {
  const Problem p = make_problem(64, 64, 64);
  Inputs inputs = random_inputs(p, 21);
  fill_all(inputs.q, 1000.0f);
  fill_all(inputs.k, 1000.0f);
  expect_mean_of_values(p, inputs, run_kernel(kernel(), p, inputs), 2e-5);
}

TEST_P(Cases, T55LseIsANaturalLogarithm) {
  const Problem p = make_problem(1, 2, 1);
  Inputs inputs = random_inputs(p, 22);
  inputs.q.set({0, 0, 0, 0}, 1.0f);
  inputs.k.set({0, 0, 0, 0}, 1.0f);
  inputs.k.set({0, 0, 1, 0}, 2.0f);
  const Outputs out = run_kernel(kernel(), p, inputs);
  EXPECT_NEAR(static_cast<double>(out.lse[0]), std::log(std::exp(1.0) + std::exp(2.0)), 1e-6);
}

TEST_P(Cases, T58AMisalignedWorkspaceIsRefusedByName) {
  const Problem p = make_problem(8, 8, 16);
  CpuDevice device(1);
  const Target target{&device.facts(), 1, false};
  const Footprint size = kernel().footprint(p, Pass::kFwd, target);
  if (size.workspace_bytes == 0) GTEST_SKIP() << "this kernel takes no workspace";
  auto scratch = device.allocate(size.workspace_bytes + size.saved_bytes + 512);
  ASSERT_TRUE(scratch);
  const Inputs inputs = random_inputs(p, 23);
  HostTensor o(inputs.q.view().extent, p.dtype);
  std::vector<float> lse(8);
  AttentionArgs args;
  args.problem = p;
  args.q = inputs.q.view();
  args.k = inputs.k.view();
  args.v = inputs.v.view();
  args.o = o.view();
  args.lse = lse.data();
  args.saved = scratch->data();
  args.workspace = static_cast<unsigned char*>(scratch->data()) + 4;
  const auto prepared = prepare(kernel(), args, Pass::kFwd, device);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().kind, base::ErrorKind::kUnsupported);
  EXPECT_NE(prepared.error().message.find("workspace"), std::string::npos) << prepared.error().message;
}

INSTANTIATE_TEST_SUITE_P(Cpu, Cases,
                         ::testing::ValuesIn(cpu_backend().kernels().begin(), cpu_backend().kernels().end()),
                         kernel_name);

}  // namespace
}  // namespace attnbench::kernels
