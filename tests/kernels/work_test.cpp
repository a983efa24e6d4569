// The counts of work against numbers computed by hand.
#include "kernels/work.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#include "bench/base/saturate.hpp"

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

TEST(VisiblePairs, AreTheSumOverRowsForEveryMaskAndOblong) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t window : {-1, 0, 1, 3, 20}) {
      for (std::int64_t sq = 0; sq < 10; ++sq) {
        for (std::int64_t sk = 0; sk < 10; ++sk) {
          const Problem p = of_lengths(sq, sk, causal, window);
          std::int64_t sum = 0;
          for (std::int64_t i = 0; i < sq; ++i) sum += visible_keys(p, i).count();
          EXPECT_EQ(visible_pairs(p), static_cast<double>(sum)) << sq << " " << sk << " " << causal << " " << window;
        }
      }
    }
  }
}

TEST(VisiblePairs, OfAWindowWithoutEndAreThoseWithoutAWindow) {
  for (const bool causal : {false, true}) {
    for (const auto& [sq, sk] : {std::pair{6, 6}, {4, 9}, {9, 4}}) {
      const Problem endless = of_lengths(sq, sk, causal, INT64_MAX);
      const Problem none = of_lengths(sq, sk, causal);
      EXPECT_EQ(visible_pairs(endless), visible_pairs(none)) << sq << " " << sk << " " << causal;
      for (std::int64_t i = 0; i < sq; ++i) EXPECT_EQ(visible_keys(endless, i).begin, 0) << i;
      for (std::int64_t j = 0; j < sk; ++j) EXPECT_EQ(visible_queries(endless, j).end, sq) << j;
    }
  }
}

TEST(VisiblePairs, OfTheLongestSequenceAreExactAndImmediate) {
  const std::int64_t s = std::int64_t{1} << 32;
  EXPECT_EQ(visible_pairs(of_lengths(s, s, true)), 0x1p63 + 0x1p31);
  EXPECT_EQ(visible_pairs(of_lengths(s, s, false)), 0x1p64);
  // 17 keys a row but for the first 16, which see 1, 2, ... 16: the difference of two sums near 2^63.
  EXPECT_EQ(visible_pairs(of_lengths(s, s, true, 16)), 17.0 * 0x1p32 - 16 * 17 / 2);
}

TEST(VisibleQueries, AreTheTransposeOfVisibleKeys) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t window : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{2}, std::int64_t{9}, INT64_MAX}) {
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

TEST(Bytes, StayAtTheTopInsteadOfWrapping) {
  EXPECT_EQ(base::saturating_product({3, 5, 7}), 105u);
  EXPECT_EQ(base::saturating_product({std::int64_t{1} << 62, 4}), base::kMostCount);
  EXPECT_EQ(base::saturating_product({std::int64_t{1} << 62, 4, 0}), 0u);
  EXPECT_EQ(base::saturating_sum({base::kMostCount, 1}), base::kMostCount);
  EXPECT_EQ(base::saturating_sum({1, 2, 3}), 6u);
  Problem p = of_lengths(std::int64_t{1} << 20, std::int64_t{1} << 20, true);
  p.batch = std::int64_t{1} << 24;
  p.heads = p.kv_heads = std::int64_t{1} << 20;
  p.head_dim = 16;  // 2^68 elements, which are 16 by the arithmetic of 64 bits
  EXPECT_EQ(tensor_bytes(p, Pass::kFwd), base::kMostCount);
  EXPECT_EQ(model_bytes(p, Pass::kFwd, false), 4 * 0x1p70 + 0x1p66);
  EXPECT_EQ(model_flops(p, Pass::kFwd), 4 * 0x1p44 * visible_pairs(p) * 16);
}

TEST(Countable, IsWhatKernelsCanBeAskedAbout) {
  Problem p = of_lengths(std::int64_t{1} << 22, std::int64_t{1} << 22, true);
  p.head_dim = 64;
  EXPECT_TRUE(is_countable(p, true));  // 2^44 scores
  p.heads = 2;
  EXPECT_FALSE(is_countable(p, true));
  EXPECT_TRUE(is_countable(p, false));
  p.batch = std::int64_t{1} << 16;
  EXPECT_FALSE(is_countable(p, false));
  p.seq_q = p.seq_k = 0;  // batch and heads alone can be too many
  EXPECT_TRUE(is_countable(p, true));
  p.heads = std::int64_t{1} << 32;
  EXPECT_FALSE(is_countable(p, true));
  p.batch = 0;
  p.heads = 1;
  p.seq_q = std::int64_t{1} << 62;  // whose rounding to whole tiles would wrap
  EXPECT_FALSE(is_countable(p, false));
}

}  // namespace
}  // namespace attnbench::kernels
