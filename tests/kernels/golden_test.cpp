// Every CPU kernel against tensors that another program computed in double precision.
#include "tests/kernels/golden_case.hpp"

namespace attnbench::kernels {
namespace {

class GoldenTest : public CpuKernel {
 protected:
  void check(Dtype dtype) {
    ASSERT_EQ(golden_cases().size(), kGoldenCases) << "golden files are missing";
    for (const GoldenCase& golden : golden_cases()) {
      SCOPED_TRACE(golden.name);
      Problem problem = golden.golden.problem;
      problem.dtype = dtype;
      const double usual = default_tolerance(problem).forward;
      golden.expect_near(run_kernel(kernel(), problem, golden.inputs(dtype)), golden.bound(dtype, usual));
    }
  }
};

TEST_P(GoldenTest, AgreesInFp32) { check(Dtype::kFp32); }
TEST_P(GoldenTest, AgreesInBf16) { check(Dtype::kBf16); }
TEST_P(GoldenTest, AgreesInFp16) { check(Dtype::kFp16); }

INSTANTIATE_TEST_SUITE_P(Cpu, GoldenTest,
                         ::testing::ValuesIn(cpu_backend().kernels().begin(), cpu_backend().kernels().end()),
                         kernel_name);

/// The oracle and the files were written by different people in different languages: each checks the other.
TEST(Oracle, AgreesWithTheGoldenFiles) {
  for (const GoldenCase& golden : golden_cases()) {
    SCOPED_TRACE(golden.name);
    const Inputs inputs = golden.inputs(Dtype::kFp32);
    const OracleForward forward = oracle_forward(golden.golden.problem, inputs.oracle());
    const OracleBackward backward = oracle_backward(golden.golden.problem, inputs.oracle());
    const auto rounded = [](const std::vector<double>& x) { return std::vector<float>(x.begin(), x.end()); };
    golden.expect_near({rounded(forward.o),
                        rounded(forward.lse),
                        rounded(backward.dq),
                        rounded(backward.dk),
                        rounded(backward.dv),
                        {}},
                       2e-7);  // the files are rounded to fp32
  }
}

}  // namespace
}  // namespace attnbench::kernels
