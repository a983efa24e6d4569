// Cases T15, T52 and T59: every length around the edges of tiles, causal and not, forward and backward.
#include "kernel_case.hpp"

namespace attnbench::kernels {
namespace {

class Lengths : public CpuKernel {
 protected:
  void every_length(bool causal, Dtype dtype) {
    for (std::int64_t length = 1; length <= 130; ++length) {
      // Lengths of the two sides differ, by a step that visits both signs, so that neither is a multiple of the other.
      const std::int64_t keys = std::max<std::int64_t>(1, length + length % 7 - 3);
      const Problem square = make_problem(length, length, 8, causal, dtype);
      const Problem oblong = make_problem(length, keys, 5, causal, dtype);
      for (const Problem& p : {square, oblong}) {
        expect_like_oracle(kernel(), p, random_inputs(p, static_cast<std::uint64_t>(length)));
      }
      if (HasFailure()) return;  // one length that fails says enough
    }
  }
};

TEST_P(Lengths, EveryLengthFrom1To130IsRight) { every_length(false, Dtype::kFp32); }
TEST_P(Lengths, EveryCausalLengthFrom1To130IsRight) { every_length(true, Dtype::kFp32); }
TEST_P(Lengths, EveryCausalLengthFrom1To130IsRightInBf16) { every_length(true, Dtype::kBf16); }

TEST_P(Lengths, EveryHeadDimensionAroundVectorWidthsIsRight) {
  for (const std::int64_t dim :
       {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 41, 47, 64, 65, 72, 96, 127, 128, 200, 255, 256}) {
    const Problem p = make_problem(19, 37, dim, true);
    expect_like_oracle(kernel(), p, random_inputs(p, static_cast<std::uint64_t>(dim)));
  }
}

TEST_P(Lengths, LengthsBeyondOneTileAreRight) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t length : {200, 257, 400, 513, 777}) {
      const Problem p = make_problem(length, length + 5, 16, causal);
      expect_like_oracle(kernel(), p, random_inputs(p, static_cast<std::uint64_t>(length)));
    }
  }
}

/// Long enough that every loop over blocks goes round several times, in flash too (384 keys), and whole: no sample.
TEST_P(Lengths, ThousandsOfKeysAndQueriesAreRightToTheLast) {
  for (const bool causal : {false, true}) {
    const Problem p = make_problem(1601, 2050, 8, causal);
    expect_like_oracle(kernel(), p, random_inputs(p, 31));
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Lengths,
                         ::testing::ValuesIn(cpu_backend().kernels().begin(), cpu_backend().kernels().end()),
                         kernel_name);

}  // namespace
}  // namespace attnbench::kernels
