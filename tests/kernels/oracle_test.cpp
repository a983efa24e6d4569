// The oracle against numbers computed by hand, and its sampled forms against its full ones.
#include "kernels/oracle/oracle.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernel_case.hpp"

namespace attnbench::kernels {
namespace {

/// One query, two keys with logits 0 and ln 3, so that the weights are 1/4 and 3/4.
struct HandMade {
  Problem problem = make_problem(1, 2, 1);
  Inputs inputs = random_inputs(problem, 1);

  HandMade() {
    problem.scale = 1.0f;
    inputs.q.set({0, 0, 0, 0}, 1.0f);
    inputs.k.set({0, 0, 0, 0}, 0.0f);
    inputs.k.set({0, 0, 1, 0}, std::log(3.0f));
    inputs.v.set({0, 0, 0, 0}, 8.0f);
    inputs.v.set({0, 0, 1, 0}, 4.0f);
    inputs.dout.set({0, 0, 0, 0}, 2.0f);
  }
};

TEST(Oracle, ForwardGivesTheWeightsOfAHandMadeCase) {
  const HandMade hand;
  const OracleForward out = oracle_forward(hand.problem, hand.inputs.oracle());
  EXPECT_NEAR(out.o[0], 8.0 / 4 + 4.0 * 3 / 4, 1e-6);
  EXPECT_NEAR(out.lse[0], std::log(4.0), 1e-6);
}

TEST(Oracle, BackwardGivesTheGradientsOfAHandMadeCase) {
  // dp = 2 * (8, 4) = (16, 8), delta = 16/4 + 8*3/4 = 10, ds = (1/4 * 6, 3/4 * -2) = (1.5, -1.5).
  const HandMade hand;
  const OracleBackward out = oracle_backward(hand.problem, hand.inputs.oracle());
  EXPECT_NEAR(out.dq[0], -1.5 * std::log(3.0), 1e-6);
  EXPECT_NEAR(out.dk[0], 1.5, 1e-6);
  EXPECT_NEAR(out.dk[1], -1.5, 1e-6);
  EXPECT_NEAR(out.dv[0], 2.0 / 4, 1e-6);
  EXPECT_NEAR(out.dv[1], 2.0 * 3 / 4, 1e-6);
}

TEST(Oracle, GradientsAreTheSlopesOfTheForward) {
  // Central differences of the sum of o * dout, with a step that leaves 1e-4 of truncation error.
  Problem p = make_problem(5, 7, 3, true);
  p.heads = 2;
  p.window_left = 4;
  Inputs inputs = random_inputs(p, 2);
  const std::vector<float> dout = inputs.dout.values();
  const auto objective = [&] {
    const OracleForward out = oracle_forward(p, inputs.oracle());
    double sum = 0;
    for (std::size_t i = 0; i < dout.size(); ++i) sum += out.o[i] * static_cast<double>(dout[i]);
    return sum;
  };
  const OracleBackward gradients = oracle_backward(p, inputs.oracle());
  const auto check = [&](HostTensor& tensor, const std::vector<double>& gradient, const char* name) {
    std::size_t index = 0;
    for (std::int64_t h = 0; h < tensor.view().extent[1]; ++h) {
      for (std::int64_t s = 0; s < tensor.view().extent[2]; ++s) {
        for (std::int64_t d = 0; d < 3; ++d, ++index) {
          const float before = tensor.get({0, h, s, d});
          const float above = before + 0x1p-8f;
          const float below = before - 0x1p-8f;
          tensor.set({0, h, s, d}, above);
          const double up = objective();
          tensor.set({0, h, s, d}, below);
          const double down = objective();
          tensor.set({0, h, s, d}, before);
          const double slope = (up - down) / (static_cast<double>(above) - static_cast<double>(below));
          EXPECT_NEAR(slope, gradient[index], 2e-4) << name << " " << index;
        }
      }
    }
  };
  check(inputs.q, gradients.dq, "dq");
  check(inputs.k, gradients.dk, "dk");
  check(inputs.v, gradients.dv, "dv");
}

TEST(Oracle, SampledRowsAndKeysEqualTheFullResult) {
  Problem p = make_problem(31, 40, 9, true, Dtype::kBf16);
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  const Inputs inputs = random_inputs(p, 3, Layout::kTransposed);
  const OracleForward forward = oracle_forward(p, inputs.oracle());
  const OracleBackward backward = oracle_backward(p, inputs.oracle());
  const std::vector<QueryRow> rows{{1, 3, 30}, {0, 0, 0}, {1, 2, 17}};
  const std::vector<RowResult> sampled = oracle_rows(p, inputs.oracle(), rows, Pass::kFwdBwd);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto index = static_cast<std::size_t>((rows[r].batch * 4 + rows[r].head) * 31 + rows[r].query);
    EXPECT_EQ(sampled[r].lse, forward.lse[index]);
    for (std::size_t d = 0; d < 9; ++d) {
      EXPECT_EQ(sampled[r].o[d], forward.o[index * 9 + d]);
      EXPECT_EQ(sampled[r].dq[d], backward.dq[index * 9 + d]);
    }
  }
  const std::vector<std::int64_t> keys{39, 0, 12};
  const std::vector<KeyResult> columns = oracle_keys(p, inputs.oracle(), 1, 1, keys);
  for (std::size_t c = 0; c < keys.size(); ++c) {
    const auto index = static_cast<std::size_t>((1 * 2 + 1) * 40 + keys[c]);
    for (std::size_t d = 0; d < 9; ++d) {
      EXPECT_EQ(columns[c].dk[d], backward.dk[index * 9 + d]);
      EXPECT_EQ(columns[c].dv[d], backward.dv[index * 9 + d]);
    }
  }
}

TEST(Oracle, ForwardRowsHaveNoGradient) {
  const Problem p = make_problem(3, 3, 4);
  const Inputs inputs = random_inputs(p, 4);
  const std::vector<QueryRow> rows{{0, 0, 1}};
  EXPECT_TRUE(oracle_rows(p, inputs.oracle(), rows, Pass::kFwd)[0].dq.empty());
}

TEST(Oracle, ThreadsDoNotChangeTheResult) {
  const Problem p = make_problem(100, 90, 8, true);
  const Inputs inputs = random_inputs(p, 5);
  ThreadPool pool(3);
  EXPECT_EQ(oracle_forward(p, inputs.oracle(), &pool).o, oracle_forward(p, inputs.oracle()).o);
  const OracleBackward one = oracle_backward(p, inputs.oracle());
  const OracleBackward three = oracle_backward(p, inputs.oracle(), &pool);
  EXPECT_EQ(three.dq, one.dq);
  EXPECT_EQ(three.dk, one.dk);
  EXPECT_EQ(three.dv, one.dv);
}

TEST(Oracle, LogitsBeyondFp32Saturate) {
  const Problem p = make_problem(2, 3, 4);
  Inputs inputs = random_inputs(p, 6);
  inputs.q.fill([](const Index4&) { return 1e30f; });
  inputs.k.fill([](const Index4&) { return 1e30f; });
  const OracleForward out = oracle_forward(p, inputs.oracle());
  for (std::int64_t d = 0; d < 4; ++d) {
    const double mean =
        (static_cast<double>(inputs.v.get({0, 0, 0, d})) + static_cast<double>(inputs.v.get({0, 0, 1, d})) +
         static_cast<double>(inputs.v.get({0, 0, 2, d}))) /
        3;
    EXPECT_NEAR(out.o[static_cast<std::size_t>(d)], mean, 1e-12);
  }
}

}  // namespace
}  // namespace attnbench::kernels
