// Every CUDA kernel on the golden tensors and against the oracle: lengths, head dimensions, masks, groups, strides.
#include "tests/gpu/gpu_case.hpp"
#include "tests/kernels/golden_case.hpp"

namespace attnbench::kernels {
namespace {

class GoldenOnGpu : public GpuKernel {
 protected:
  void check(Dtype dtype) {
    if (!std::filesystem::exists(golden_folder())) {
      GTEST_SKIP() << "no golden files at " << golden_folder() << "; set ATTNBENCH_GOLDEN to their folder";
    }
    ASSERT_EQ(golden_cases().size(), kGoldenCases) << "golden files are missing in " << golden_folder();
    int checked = 0;
    for (const GoldenCase& golden : golden_cases()) {
      SCOPED_TRACE(golden.name);
      Problem p = golden.golden.problem;
      p.dtype = dtype;
      const auto out = run_on_gpu(kernel(), p, golden.inputs(dtype));
      if (!out) continue;
      ++checked;
      golden.expect_near(*out, golden.bound(dtype, gpu_bound(kernel(), p)));
    }
    if (checked == 0) GTEST_SKIP() << "the kernel declines " << to_string(dtype);
    RecordProperty("cases", checked);
  }
};

TEST_P(GoldenOnGpu, AgreesInFp32) { check(Dtype::kFp32); }
TEST_P(GoldenOnGpu, AgreesInBf16) { check(Dtype::kBf16); }
TEST_P(GoldenOnGpu, AgreesInFp16) { check(Dtype::kFp16); }
ATTNBENCH_GPU_SUITE(GoldenOnGpu, gpu_kernels());

class Lengths : public GpuKernel {
 protected:
  void check(Dtype dtype, bool causal) {
    if (taken({dtype}).empty()) GTEST_SKIP() << "the kernel declines " << to_string(dtype);
    for (std::int64_t s = 1; s <= 130; ++s) {
      Problem p = make_problem(s, s, 64, causal, dtype);
      p.heads = p.kv_heads = 2;
      ASSERT_TRUE(expect_like_oracle_on_gpu(kernel(), p, random_inputs(p, 1)));
      if (HasFailure()) return;  // one length says enough; a hundred hide it
      p = make_problem(s, s * 37 % 131, 64, causal, dtype);
      ASSERT_TRUE(expect_like_oracle_on_gpu(kernel(), p, random_inputs(p, 2)));
      if (HasFailure()) return;
    }
  }
};

TEST_P(Lengths, EveryLengthTo130InFp32) { check(Dtype::kFp32, false); }
TEST_P(Lengths, EveryLengthTo130InBf16) { check(Dtype::kBf16, false); }
TEST_P(Lengths, EveryLengthTo130CausalInFp32) { check(Dtype::kFp32, true); }
TEST_P(Lengths, EveryLengthTo130CausalInBf16) { check(Dtype::kBf16, true); }
ATTNBENCH_GPU_SUITE(Lengths, own_gpu_kernels());

class Shapes : public GpuKernel {
 protected:
  void agrees(const Problem& p, const GpuOptions& options = {}, Layout layout = Layout::kDense) {
    expect_like_oracle_on_gpu(kernel(), p, random_inputs(p, 3, layout), options);
  }
};

TEST_P(Shapes, EveryHeadDimensionAgreesOrIsDeclinedByName) {
  int supported = 0;
  for (const std::int64_t d : {1, 8, 16, 24, 32, 41, 64, 72, 80, 96, 100, 128, 160, 192, 255, 256}) {
    for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
      Problem p = make_problem(150, 170, d, true, dtype);
      p.heads = p.kv_heads = 2;
      if (expect_like_oracle_on_gpu(kernel(), p, random_inputs(p, 4))) ++supported;
    }
  }
  EXPECT_GE(supported, 3);
}

TEST_P(Shapes, LongSequencesAgree) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
    agrees(make_problem(1025, 1025, 64, true, dtype));
    agrees(make_problem(700, 1400, 128, false, dtype));
  }
}

TEST_P(Shapes, AGroupOfHeadsReadsItsOwnKeysAndAddsItsGradients) {
  for (const std::int64_t kv : {1, 2, 4}) {
    for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
      Problem p = make_problem(100, 200, 64, true, dtype);
      p.batch = 2;
      p.heads = 8;
      p.kv_heads = kv;
      agrees(p);
    }
  }
}

TEST_P(Shapes, AWindowShowsOneKeyMoreThanItsWidth) {
  for (const std::int64_t window : {0, 1, 15, 16, 17, 63, 64, 100, 1000}) {
    for (const bool causal : {true, false}) {
      for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
        Problem p = make_problem(150, 190, 64, causal, dtype);
        p.window_left = window;
        agrees(p);
      }
    }
  }
}

TEST_P(Shapes, AWindowOverEverythingIsTheCausalMaskBitForBit) {
  Problem causal = make_problem(200, 200, 64, true, Dtype::kBf16);
  Problem window = causal;
  window.window_left = 199;
  const Inputs inputs = random_inputs(causal, 5);
  const auto a = run_on_gpu(kernel(), causal, inputs, {.deterministic = true});
  const auto b = run_on_gpu(kernel(), window, inputs, {.deterministic = true});
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->o, b->o);
  EXPECT_EQ(a->lse, b->lse);
  EXPECT_EQ(a->dq, b->dq);
}

TEST_P(Shapes, StridesAgreeOrAreDeclinedByName) {
  for (const Layout in : {Layout::kPadded, Layout::kTransposed}) {
    for (const Layout out : {Layout::kDense, Layout::kPadded, Layout::kTransposed}) {
      for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
        Problem p = make_problem(70, 90, 64, true, dtype);
        p.batch = 2;
        p.heads = 4;
        p.kv_heads = 2;
        agrees(p, {.layout = out}, in);
      }
    }
  }
}

TEST_P(Shapes, OneInputAloneMayBeStrided) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16}) {
    for (const Layout layout : {Layout::kPadded, Layout::kTransposed}) {
      for (HostTensor Inputs::*one : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::dout}) {
        Problem p = make_problem(70, 90, 64, true, dtype);
        p.heads = 4;
        p.kv_heads = 2;
        Inputs inputs = random_inputs(p, 6);
        inputs.*one = std::move(random_inputs(p, 7, layout).*one);
        expect_like_oracle_on_gpu(kernel(), p, inputs);
      }
    }
  }
}

TEST_P(Shapes, MoreThan65535HeadsAgree) {
  Problem p = make_problem(3, 4, 16, true, Dtype::kBf16);
  p.batch = 35000;
  p.heads = 2;
  p.kv_heads = 1;
  agrees(p);
  p = make_problem(1, 1, 128, false, Dtype::kBf16);
  p.batch = 8300;
  p.heads = p.kv_heads = 16;
  agrees(p);
}

TEST_P(Shapes, TensorsOfASecondGpuAgreeWhileTheFirstIsCurrent) {
  Device& first = *gpu();
  auto second = (*cuda_backend())->open(1);
  if (!second) GTEST_SKIP() << second.error().message;
  const UseGpu use(**second);
  agrees(make_problem(130, 140, 64, true, Dtype::kBf16), {.before = [&] { (void)first.synchronize(); }});
  agrees(make_problem(130, 140, 64, true, Dtype::kFp32), {.before = [&] { (void)first.synchronize(); }});
}

TEST_P(Shapes, OnePassAloneAgrees) { agrees(make_problem(130, 130, 64, true, Dtype::kBf16), {.pass = Pass::kFwd}); }

TEST_P(Shapes, ASecondLaunchGivesTheSame) {
  agrees(make_problem(130, 140, 64, true, Dtype::kBf16), {.launches = 2});
  agrees(make_problem(130, 140, 64, true, Dtype::kFp32), {.launches = 2});
}

TEST_P(Shapes, AGraphOfLaunchesAgrees) {
  agrees(make_problem(130, 140, 64, true, Dtype::kBf16), {.in_graph = true});
  agrees(make_problem(130, 140, 64, true, Dtype::kFp32), {.in_graph = true});
}

TEST_P(Shapes, TwentyDeterministicRunsAreBitwiseEqual) {
  for (const Dtype dtype : taken({Dtype::kFp32, Dtype::kBf16})) {
    Problem p = make_problem(500, 500, 64, true, dtype);
    p.batch = 2;
    p.heads = 8;
    p.kv_heads = 2;
    const Inputs inputs = random_inputs(p, 8);
    const auto first = run_on_gpu(kernel(), p, inputs, {.deterministic = true});
    ASSERT_TRUE(first);
    for (int run = 1; run < 20; ++run) {
      const auto next = run_on_gpu(kernel(), p, inputs, {.deterministic = true});
      ASSERT_TRUE(next);
      EXPECT_EQ(first->o, next->o) << "run " << run;
      EXPECT_EQ(first->dq, next->dq) << "run " << run;
      EXPECT_EQ(first->dk, next->dk) << "run " << run;
      EXPECT_EQ(first->dv, next->dv) << "run " << run;
      const auto forward = run_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd});
      if (!forward) continue;  // declined by name: its forward came from another kernel
      EXPECT_EQ(first->o, forward->o) << "the forward adds in one order, asked for or not";
    }
  }
}

ATTNBENCH_GPU_SUITE(Shapes, own_gpu_kernels());

}  // namespace
}  // namespace attnbench::kernels
