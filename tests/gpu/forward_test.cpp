// Kernels that take the forward alone: what the suites of whole kernels ask, as far as it applies to them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/gpu/gpu_case.hpp"

namespace attnbench::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

constexpr std::int64_t kDims[] = {16, 32, 64, 96, 128, 192, 256};

/// Rows [begin, end) of every head, all columns.
void fill_rows(HostTensor& tensor, std::int64_t begin, std::int64_t end, float value) {
  const Index4 e = tensor.view().extent;
  for (std::int64_t i = 0; i < e[0] * e[1] * (end - begin) * e[3]; ++i) {
    const std::int64_t row = i / e[3] % (end - begin), head = i / e[3] / (end - begin);
    tensor.set({head / e[1], head % e[1], begin + row, i % e[3]}, value);
  }
}

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
    agrees(make_problem(length, length, 128, true, Dtype::kBf16), 1);
    agrees(make_problem(length, 131 - length, 64, true, Dtype::kFp16), 2);
  }
}

TEST_P(ForwardOnly, CausalOfEveryShapeAgrees) {
  for (const std::int64_t dim : kDims) {
    for (const auto& [seq_q, seq_k] : {std::pair{64, 64},
                                       {192, 192},
                                       {333, 333},
                                       {512, 512},
                                       {1, 700},
                                       {700, 1},
                                       {200, 517},
                                       {517, 200},
                                       {700, 2500},
                                       {2500, 2048}}) {
      agrees(make_problem(seq_q, seq_k, dim, true, Dtype::kBf16), 8);
    }
  }
}

TEST_P(ForwardOnly, WindowsAgree) {
  for (const std::int64_t dim : kDims) {
    for (const auto& [seq_q, seq_k] : {std::pair{300, 300}, {517, 200}, {130, 900}, {30, 2100}}) {
      for (const std::int64_t window : {0, 1, 37, 128, 500, 100000}) {
        for (const bool causal : {true, false}) {
          Problem p = make_problem(seq_q, seq_k, dim, causal, Dtype::kBf16);
          p.window_left = window;
          agrees(p, 9);
        }
      }
    }
  }
}

/// More tiles than multiprocessors, so that blocks go from tile to tile.
TEST_P(ForwardOnly, ManyTilesAgree) {
  for (const std::int64_t dim : kDims) {
    for (const bool causal : {false, true}) {
      Problem p = make_problem(410, 390, dim, causal, Dtype::kBf16);
      p.batch = 2;
      p.heads = p.kv_heads = 20;
      agrees(p, 10);
    }
  }
}

TEST_P(ForwardOnly, QueriesThatSeeNothingGiveZeros) {
  for (const auto& [seq_q, seq_k] : {std::pair{5, 2}, {76, 1}, {300, 20}, {1000, 70}}) {
    const Problem p = make_problem(seq_q, seq_k, 128, true, Dtype::kBf16);
    const auto out = run_on_gpu(kernel(), p, random_inputs(p, 11), {.pass = Pass::kFwd});
    ASSERT_TRUE(out);
    const auto empty = static_cast<std::size_t>(seq_q - seq_k);
    for (std::size_t i = 0; i < empty * 128; ++i) ASSERT_EQ(out->o[i], 0.0f) << i;
    for (std::size_t i = 0; i < empty; ++i) ASSERT_EQ(out->lse[i], -kInf) << i;
    agrees(p, 11);
  }
}

TEST_P(ForwardOnly, LongSequencesAndGroupsOfHeadsAgree) {
  for (const std::int64_t dim : kDims) {
    for (const bool causal : {false, true}) {
      Problem p = make_problem(260, 2111, dim, causal, Dtype::kFp16);
      p.batch = 2;
      p.heads = 6;
      p.kv_heads = 2;
      agrees(p, 3);
    }
  }
}

TEST_P(ForwardOnly, StridesAgree) {
  for (const Layout layout : {Layout::kDense, Layout::kPadded, Layout::kTransposed}) {
    for (const bool causal : {false, true}) {
      agrees(make_problem(200, 300, 128, causal, Dtype::kBf16), 4, {.pass = Pass::kFwd, .layout = layout});
    }
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
  for (const bool causal : {false, true}) {
    const Problem p = make_problem(150, 150, 64, causal, Dtype::kBf16);
    Inputs inputs = random_inputs(p, 6);
    const auto clean = run_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd});
    inputs.q.set({0, 0, 77, 0}, kNan);
    const auto out = run_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd});
    ASSERT_TRUE(clean && out);
    for (std::size_t i = 0; i < out->o.size(); ++i) {
      if (i / 64 == 77) {
        ASSERT_TRUE(std::isnan(out->o[i])) << i;
      } else {
        ASSERT_EQ(out->o[i], clean->o[i]) << i;
      }
    }
    EXPECT_TRUE(std::isnan(out->lse[77]));
  }
}

/// A key in the middle of a block: rows that see it become NaN or infinite, the others hold what they held.
TEST_P(ForwardOnly, WhatAHiddenKeyHoldsReachesNoRow) {
  for (const std::int64_t dim : kDims) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
      for (const float odd : {kNan, kInf, -kInf}) {
        for (const std::int64_t window : {-1, 150}) {
          Problem p = make_problem(400, 430, dim, true, dtype);
          p.window_left = window;
          Inputs inputs = random_inputs(p, 12);
          const OracleForward clean = oracle_forward(p, inputs.oracle());
          double largest = 1;
          for (const double x : clean.o) largest = std::max(largest, std::abs(x));
          const double bound = gpu_bound(kernel(), p) * largest;
          fill_rows(inputs.v, 230, 231, odd);
          if (std::isnan(odd)) fill_rows(inputs.k, 230, 231, odd);
          const auto out = run_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd});
          ASSERT_TRUE(out);
          const KeyRange reached = visible_queries(p, 230);
          for (std::int64_t i = 0; i < 400 * dim; ++i) {
            const float got = out->o[static_cast<std::size_t>(i)];
            if (i / dim >= reached.begin && i / dim < reached.end) {
              ASSERT_FALSE(std::isfinite(got)) << "row " << i / dim;
            } else {
              ASSERT_NEAR(got, clean.o[static_cast<std::size_t>(i)], bound) << "row " << i / dim;
            }
          }
        }
      }
    }
  }
}

TEST_P(ForwardOnly, KeysThatNobodySeesMayHoldAnything) {
  for (const float odd : {kNan, kInf, -kInf}) {
    Problem p = make_problem(20, 90, 64, true, Dtype::kBf16);
    p.window_left = 9;  // keys 0 to 60 are visible to none
    Inputs inputs = random_inputs(p, 17);
    const OracleForward clean = oracle_forward(p, inputs.oracle());
    fill_rows(inputs.k, 0, 61, odd);
    fill_rows(inputs.v, 0, 61, odd);
    const auto out = run_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd});
    ASSERT_TRUE(out);
    EXPECT_LE(error_of(out->o, clean.o), gpu_bound(kernel(), p));
    EXPECT_LE(error_of(out->lse, clean.lse), gpu_bound(kernel(), p));
  }
}

TEST_P(ForwardOnly, QueriesThatSeeNothingMayHoldAnything) {
  for (const float odd : {kNan, kInf}) {
    const Problem p = make_problem(90, 20, 64, true, Dtype::kBf16);  // queries 0 to 69 see nothing
    Inputs inputs = random_inputs(p, 18);
    fill_rows(inputs.q, 0, 70, odd);
    EXPECT_TRUE(expect_like_oracle_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd}));
  }
}

TEST_P(ForwardOnly, AVeryNegativeScoreStillOutweighsMaskedKeys) {
  const Problem p = make_problem(40, 40, 64, true, Dtype::kBf16);
  Inputs inputs = random_inputs(p, 13);
  fill_rows(inputs.q, 0, 40, -1280.0f);  // scores of -20480
  fill_rows(inputs.k, 0, 40, 2.0f);
  EXPECT_TRUE(expect_like_oracle_on_gpu(kernel(), p, inputs, {.pass = Pass::kFwd}));
}

TEST_P(ForwardOnly, TwentyRunsAreBitwiseEqual) {
  for (const bool causal : {false, true}) {
    Problem p = make_problem(1000, 3000, 128, causal, Dtype::kBf16);
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
}

TEST_P(ForwardOnly, WhatItDoesNotTakeIsDeclinedByName) {
  const Target target{&gpu()->facts(), 1, false};
  const auto reason = [&](const Problem& p, Pass pass) { return kernel().supports(p, pass, target).value_or(""); };
  const Problem plain = make_problem(64, 64, 64, false, Dtype::kBf16);
  EXPECT_EQ(reason(plain, Pass::kFwd), "");
  EXPECT_EQ(reason(plain, Pass::kBwd), "");
  EXPECT_EQ(reason(make_problem(64, 64, 64, true, Dtype::kBf16), Pass::kFwd), "");
  EXPECT_NE(reason(make_problem(64, 64, 80, false, Dtype::kBf16), Pass::kFwd).find("80"), std::string::npos);
  EXPECT_NE(reason(make_problem(64, 64, 64, false, Dtype::kFp32), Pass::kFwd).find("fp32"), std::string::npos);
}

ATTNBENCH_GPU_SUITE(ForwardOnly, forward_gpu_kernels());

}  // namespace
}  // namespace attnbench::kernels
