// The contract for odd inputs: NaN and infinity stay where they may be seen, every output is written, thread counts do
// not change results.
#include <cmath>
#include <limits>

#include "kernel_case.hpp"

namespace attnbench::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class OddInputs : public CpuKernel {};

TEST_P(OddInputs, FullMantissaNormalInputsAreRightToTwoInAHundredThousand) {
  for (const bool causal : {false, true}) {
    Problem p = make_problem(193, 211, 64, causal);
    p.heads = p.kv_heads = 2;
    expect_like_oracle(kernel(), p, random_inputs(p, 100), {}, 2e-5);
  }
}

TEST_P(OddInputs, NanInAQueryRowReachesThatRowAndTheKeysItSees) {
  const Problem p = make_problem(60, 60, 16, true);
  for (const std::int64_t row : {0, 17, 40, 59}) {
    Inputs inputs = random_inputs(p, 101);
    inputs.q.set({0, 0, row, 3}, kNan);
    const Outputs out = run_kernel(kernel(), p, inputs);
    for (std::int64_t i = 0; i < 60; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(std::isnan(out.lse[at]), i == row) << "lse " << i;
      for (std::size_t d = 0; d < 16; ++d) {
        EXPECT_EQ(std::isnan(out.o[at * 16 + d]), i == row) << "o " << i;
        EXPECT_EQ(std::isnan(out.dq[at * 16 + d]), i == row) << "dq " << i;
        EXPECT_EQ(std::isnan(out.dk[at * 16 + d]), i <= row) << "dk " << i;
        EXPECT_EQ(std::isnan(out.dv[at * 16 + d]), i <= row) << "dv " << i;
      }
    }
  }
}

TEST_P(OddInputs, NanInAGradientRowReachesItsQueryAndTheKeysItSees) {
  Problem p = make_problem(45, 50, 8, true);
  p.window_left = 20;
  Inputs inputs = random_inputs(p, 102);
  inputs.dout.set({0, 0, 30, 1}, kNan);
  expect_like_oracle(kernel(), p, inputs);  // NaN exactly where the oracle has it
  EXPECT_FALSE(std::isnan(run_kernel(kernel(), p, inputs).o[0]));
}

TEST_P(OddInputs, ValuesAtMaskedPositionsNeverLeak) {
  // The last keys are seen by the last queries only: everything else must be as if they held ordinary numbers.
  for (const float poison : {kNan, kInf, -kInf}) {
    for (HostTensor Inputs::*const member : {&Inputs::k, &Inputs::v}) {
      const Problem p = make_problem(70, 70, 16, true);
      const Inputs clean = random_inputs(p, 103);
      Inputs poisoned = random_inputs(p, 103);
      for (std::int64_t d = 0; d < 16; ++d) (poisoned.*member).set({0, 0, 66, d}, poison);
      const Outputs expected = run_kernel(kernel(), p, clean);
      const Outputs out = run_kernel(kernel(), p, poisoned);
      for (std::size_t i = 0; i < 66 * 16; ++i) {
        ASSERT_NEAR(out.o[i], expected.o[i], 1e-5) << "o row " << i / 16;
        ASSERT_NEAR(out.dq[i], expected.dq[i], 1e-5) << "dq row " << i / 16;
      }
    }
  }
}

TEST_P(OddInputs, KeysOutsideEveryWindowAreNeverRead) {
  // With 20 queries, 100 keys and a window of 10, keys 0 to 69 are seen by nobody.
  Problem p = make_problem(20, 100, 16, true);
  p.window_left = 10;
  Inputs inputs = random_inputs(p, 104);
  for (std::int64_t j = 0; j < 70; ++j) {
    for (std::int64_t d = 0; d < 16; ++d) {
      inputs.k.set({0, 0, j, d}, kNan);
      inputs.v.set({0, 0, j, d}, kInf);
    }
  }
  expect_like_oracle(kernel(), p, inputs);
  const Outputs out = run_kernel(kernel(), p, inputs);
  for (std::size_t i = 0; i < 70 * 16; ++i) {
    ASSERT_EQ(out.dk[i], 0.0f);
    ASSERT_EQ(out.dv[i], 0.0f);
  }
}

TEST_P(OddInputs, QueriesThatSeeNothingAreNeverRead) {
  const Problem p = make_problem(40, 10, 16, true);  // rows 0 to 29 see no key
  Inputs inputs = random_inputs(p, 105);
  for (std::int64_t i = 0; i < 30; ++i) {
    for (std::int64_t d = 0; d < 16; ++d) {
      inputs.q.set({0, 0, i, d}, kNan);
      inputs.dout.set({0, 0, i, d}, kInf);
    }
  }
  expect_like_oracle(kernel(), p, inputs);
}

TEST_P(OddInputs, ALaunchDependsOnNothingThatAnEarlierOneLeft) {
  Problem p = make_problem(50, 60, 16, true);
  p.heads = 4;
  p.kv_heads = 2;
  const Inputs inputs = random_inputs(p, 106);
  RunOptions twice;
  twice.launches = 3;
  const Outputs once = run_kernel(kernel(), p, inputs);
  const Outputs again = run_kernel(kernel(), p, inputs, twice);
  EXPECT_EQ(again.o, once.o);
  EXPECT_EQ(again.dq, once.dq);
  EXPECT_EQ(again.dk, once.dk);
  EXPECT_EQ(again.dv, once.dv);
}

TEST_P(OddInputs, AForwardAloneGivesTheSameResultAsOneBeforeABackward) {
  const Problem p = make_problem(77, 77, 16, true);
  const Inputs inputs = random_inputs(p, 107);
  RunOptions forward;
  forward.pass = Pass::kFwd;
  const Outputs alone = run_kernel(kernel(), p, inputs, forward);
  const Outputs both = run_kernel(kernel(), p, inputs);
  EXPECT_EQ(alone.o, both.o);
  EXPECT_EQ(alone.lse, both.lse);
}

TEST_P(OddInputs, EveryThreadCountIsRight) {
  for (const int threads : {1, 2, 3, 7}) {
    for (const std::int64_t heads : {1, 3}) {
      Problem p = make_problem(90, 110, 16, true);
      p.heads = p.kv_heads = heads;
      RunOptions options;
      options.threads = threads;
      expect_like_oracle(kernel(), p, random_inputs(p, 108), options);
    }
  }
}

TEST_P(OddInputs, ForwardsAreBitwiseEqualOnAnyNumberOfThreads) {
  Problem p = make_problem(130, 130, 32);
  p.heads = p.kv_heads = 8;
  const Inputs inputs = random_inputs(p, 109);
  RunOptions options;
  options.threads = 1;
  const Outputs one = run_kernel(kernel(), p, inputs, options);
  options.threads = 2;
  const Outputs two = run_kernel(kernel(), p, inputs, options);
  EXPECT_EQ(one.o, two.o);
  EXPECT_EQ(one.lse, two.lse);
}

TEST_P(OddInputs, AZeroScaleWeighsAllKeysAlike) {
  Problem p = make_problem(10, 20, 8);
  p.scale = 0.0f;
  expect_like_oracle(kernel(), p, random_inputs(p, 110));
}

TEST_P(OddInputs, ANegativeScaleIsRight) {
  Problem p = make_problem(30, 40, 8, true);
  p.scale = -0.7f;
  expect_like_oracle(kernel(), p, random_inputs(p, 111));
}

TEST_P(OddInputs, AHugeScaleLeavesOneHotRowsTheirZeroGradients) {
  // Every row sees one key alone, by far: dP - delta is 0 there, and what a kernel leaves of it is multiplied by scale.
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    for (const std::int64_t head_dim : {5, 64}) {
      for (const bool causal : {false, true}) {
        Problem p = make_problem(150, 210, head_dim, causal, dtype);
        p.scale = 1e6f;
        const Inputs inputs = random_inputs(p, 112);
        const Outputs outputs = run_kernel(kernel(), p, inputs);
        const OracleBackward want = oracle_backward(p, inputs.oracle());
        EXPECT_LE(error_of(outputs.dq, want.dq), default_tolerance(p).backward) << text_of(p);
        EXPECT_LE(error_of(outputs.dk, want.dk), default_tolerance(p).backward) << text_of(p);
        for (const double value : want.dq) ASSERT_EQ(value, 0) << "not one-hot: another seed is needed";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, OddInputs,
                         ::testing::ValuesIn(cpu_backend().kernels().begin(), cpu_backend().kernels().end()),
                         kernel_name);

}  // namespace
}  // namespace attnbench::kernels
