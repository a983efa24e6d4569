// The counts of work against numbers computed by hand.
#include "kernels/work.hpp"

#include <gtest/gtest.h>

namespace attnbench::kernels {
namespace {

Problem of_lengths(std::int64_t seq_q, std::int64_t seq_k, bool causal, std::int64_t window = -1) {
  Problem p;
  p.seq_q = seq_q;
  p.seq_k = seq_k;
  p.causal = causal;
  p.window_left = window;
  return p;
}

TEST(VisiblePairs, AreAllOfThemWithoutAMask) { EXPECT_EQ(visible_pairs(of_lengths(7, 9, false)), 63); }

TEST(VisiblePairs, AreTheTriangleWithItsDiagonalWhenCausal) {
  for (const std::int64_t s : {1, 2, 100, 4096}) {
    EXPECT_EQ(visible_pairs(of_lengths(s, s, true)), static_cast<double>(s * (s + 1) / 2));
  }
}

TEST(VisiblePairs, AlignCausalOblongsBottomRight) {
  EXPECT_EQ(visible_pairs(of_lengths(2, 5, true)), 4 + 5);
  EXPECT_EQ(visible_pairs(of_lengths(5, 2, true)), 0 + 0 + 0 + 1 + 2);
}

TEST(VisiblePairs, CountWindows) {
  EXPECT_EQ(visible_pairs(of_lengths(5, 5, true, 1)), 1 + 2 + 2 + 2 + 2);
  EXPECT_EQ(visible_pairs(of_lengths(4, 4, false, 1)), 4 + 4 + 3 + 2);
}

TEST(VisibleQueries, AreTheTransposeOfVisibleKeys) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t window : {-1, 0, 2, 9}) {
      for (const auto& [sq, sk] : {std::pair{6, 6}, {4, 9}, {9, 4}, {1, 1}, {3, 0}, {0, 3}}) {
        const Problem p = of_lengths(sq, sk, causal, window);
        for (std::int64_t i = 0; i < sq; ++i) {
          for (std::int64_t j = 0; j < sk; ++j) {
            const KeyRange keys = visible_keys(p, i);
            const KeyRange queries = visible_queries(p, j);
            ASSERT_EQ(j >= keys.begin && j < keys.end, i >= queries.begin && i < queries.end) << i << " " << j;
          }
        }
      }
    }
  }
}

TEST(Flops, AreFourPerPairAndDimensionForwardAndTwoAndAHalfTimesThatBackward) {
  Problem p = of_lengths(10, 10, true);  // 55 pairs
  p.batch = 2;
  p.heads = 3;
  p.kv_heads = 1;
  p.head_dim = 8;
  EXPECT_EQ(model_flops(p, Pass::kFwd), 4.0 * 2 * 3 * 55 * 8);
  EXPECT_EQ(model_flops(p, Pass::kBwd), 2.5 * 4 * 2 * 3 * 55 * 8);
  EXPECT_EQ(model_flops(p, Pass::kFwdBwd), 3.5 * 4 * 2 * 3 * 55 * 8);
  EXPECT_EQ(hardware_flops(p, Pass::kBwd, true), 2.0 * 4 * 2 * 3 * 55 * 8);
  EXPECT_EQ(hardware_flops(p, Pass::kBwd, false), model_flops(p, Pass::kBwd));
}

TEST(Bytes, CountEveryInputAndOutputOnce) {
  Problem p = of_lengths(10, 20, false);
  p.batch = 1;
  p.heads = 2;
  p.kv_heads = 1;
  p.head_dim = 8;
  p.dtype = Dtype::kBf16;
  const double query = 2 * 10 * 8 * 2, key = 1 * 20 * 8 * 2, row = 2 * 10 * 4, scores = 4 * 2 * 10 * 20;
  EXPECT_EQ(model_bytes(p, Pass::kFwd, false), 2 * query + 2 * key + row);
  EXPECT_EQ(model_bytes(p, Pass::kFwd, true), 2 * query + 2 * key + row + 4 * scores);
  EXPECT_EQ(model_bytes(p, Pass::kBwd, false), 4 * query + 4 * key + 3 * row);
  EXPECT_EQ(model_bytes(p, Pass::kBwd, true), 4 * query + 4 * key + 3 * row + 7 * scores);
  EXPECT_EQ(static_cast<double>(tensor_bytes(p, Pass::kFwd)), 2 * query + 2 * key + row);
  EXPECT_EQ(static_cast<double>(tensor_bytes(p, Pass::kFwdBwd)), 4 * query + 4 * key + row);
}

}  // namespace
}  // namespace attnbench::kernels
