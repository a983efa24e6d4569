// The Hopper backward beyond what the suites of whole kernels ask: that it runs at all, each of its tile shapes under
// every mask, and where values that are not finite may go when a tile is only partly visible.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/gpu/gpu_case.hpp"

namespace attnbench::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
/// One of every tile shape: 128 keys by 128 queries or 64, whole or with columns of padding; 64 by 64 with dQ in three
/// slices or four.
constexpr std::int64_t kDims[] = {64, 96, 128, 192, 256};

class HopperBackward : public GpuKernel {
 protected:
  void agrees(const Problem& p, std::uint64_t seed, const GpuOptions& options = {}) {
    EXPECT_TRUE(expect_like_oracle_on_gpu(kernel(), p, random_inputs(p, seed), options)) << "declined";
  }

  Outputs run(const Problem& p, const Inputs& inputs, bool deterministic = false) {
    auto out = run_on_gpu(kernel(), p, inputs, {.deterministic = deterministic});
    EXPECT_TRUE(out) << "declined";
    if (!out) return {};
    EXPECT_EQ(out->variant.substr(0, 5), "wgmma") << "another kernel ran";
    return *out;
  }

  /// Which rows of a [1, 1, S, D] gradient hold a NaN, and that no other row does, is what `expected` says.
  static void expect_nan_rows(const std::vector<float>& x, std::int64_t dim,
                              const std::function<bool(std::int64_t)>& in, const char* name) {
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(x.size()) / dim; ++row) {
      bool any = false;
      for (std::int64_t d = 0; d < dim; ++d) any = any || std::isnan(x[static_cast<std::size_t>(row * dim + d)]);
      ASSERT_EQ(any, in(row)) << name << " row " << row;
    }
  }
};

void set_row(HostTensor& tensor, std::int64_t row, std::int64_t first, std::int64_t end, float value) {
  for (std::int64_t d = first; d < end; ++d) tensor.set({0, 0, row, d}, value);
}

TEST_P(HopperBackward, EveryTileShapeAgreesUnderEveryMask) {
  for (const std::int64_t dim : kDims) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
      for (const std::int64_t window : {-1, 0, 50, 200}) {
        for (const bool causal : {false, true}) {
          Problem p = make_problem(333, 417, dim, causal, dtype);
          p.window_left = window;
          p.heads = 4;
          p.kv_heads = 2;
          agrees(p, 1);
          std::swap(p.seq_q, p.seq_k);
          agrees(p, 2);
          agrees(p, 2, {.deterministic = true});
        }
      }
    }
  }
}

TEST_P(HopperBackward, EveryLengthTo130AgreesAtHeadDimensions128And256) {
  for (const std::int64_t dim : {128, 256}) {
    for (std::int64_t length = 1; length <= 130; ++length) {
      agrees(make_problem(length, length, dim, true, Dtype::kBf16), 3);
      agrees(make_problem(length, 131 - length, dim, false, Dtype::kBf16), 4);
    }
  }
}

TEST_P(HopperBackward, MoreTilesThanMultiprocessorsAgree) {
  for (const std::int64_t dim : {128, 256}) {
    for (const bool causal : {false, true}) {
      Problem p = make_problem(640, 640, dim, causal, Dtype::kBf16);
      p.batch = 4;
      p.heads = p.kv_heads = 16;
      agrees(p, 5);
    }
  }
}

TEST_P(HopperBackward, NanInAQueryReachesItsOwnRowAndTheKeysItSees) {
  for (const std::int64_t dim : kDims) {
    const Problem p = make_problem(300, 300, dim, true, Dtype::kBf16);
    for (const std::int64_t row : {0, 63, 64, 200, 299}) {
      SCOPED_TRACE(row);
      Inputs inputs = random_inputs(p, 6);
      set_row(inputs.q, row, 0, dim, kNan);
      const Outputs out = run(p, inputs);
      expect_nan_rows(
          out.dq, dim, [&](std::int64_t r) { return r == row; }, "dq");
      expect_nan_rows(
          out.dk, dim, [&](std::int64_t r) { return r <= row; }, "dk");
      expect_nan_rows(
          out.dv, dim, [&](std::int64_t r) { return r <= row; }, "dv");
    }
  }
}

TEST_P(HopperBackward, NanInOneColumnOfDoutReachesThatColumnOfDv) {
  for (const std::int64_t dim : kDims) {
    const Problem p = make_problem(300, 300, dim, true, Dtype::kBf16);
    for (const std::int64_t row : {5, 130, 299}) {
      SCOPED_TRACE(row);
      Inputs inputs = random_inputs(p, 7);
      set_row(inputs.dout, row, 17, 18, kNan);
      const Outputs out = run(p, inputs);
      expect_nan_rows(
          out.dq, dim, [&](std::int64_t r) { return r == row; }, "dq");
      expect_nan_rows(
          out.dk, dim, [&](std::int64_t r) { return r <= row; }, "dk");
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.dv.size()); ++i) {
        ASSERT_EQ(std::isnan(out.dv[static_cast<std::size_t>(i)]), i % dim == 17 && i / dim <= row) << "dv " << i;
      }
    }
  }
}

TEST_P(HopperBackward, NanInAKeyOrAValueReachesWhoSeesIt) {
  for (const std::int64_t dim : kDims) {
    const Problem p = make_problem(300, 300, dim, true, Dtype::kBf16);
    for (const std::int64_t row : {0, 70, 255, 299}) {
      SCOPED_TRACE(row);
      Inputs inputs = random_inputs(p, 8);
      set_row(inputs.k, row, 0, dim, kNan);
      // Every query from `row` on has lost its softmax, and with it every key that it sees.
      Outputs out = run(p, inputs);
      expect_nan_rows(
          out.dq, dim, [&](std::int64_t r) { return r >= row; }, "dq");
      expect_nan_rows(
          out.dk, dim, [](std::int64_t) { return true; }, "dk");
      inputs = random_inputs(p, 8);
      set_row(inputs.v, row, 0, dim, kNan);
      out = run(p, inputs);
      expect_nan_rows(
          out.dq, dim, [&](std::int64_t r) { return r >= row; }, "dq");
      expect_nan_rows(
          out.dv, dim, [](std::int64_t) { return false; }, "dv");
    }
  }
}

TEST_P(HopperBackward, TwentyDeterministicRunsAreBitwiseEqual) {
  for (const std::int64_t dim : kDims) {
    for (const bool causal : {false, true}) {
      Problem p = make_problem(1100, 1100, dim, causal, Dtype::kBf16);
      p.batch = 2;
      p.heads = 16;
      p.kv_heads = 8;
      const Inputs inputs = random_inputs(p, 9);
      const Outputs first = run(p, inputs, true);
      for (int i = 1; i < 20; ++i) {
        const Outputs next = run(p, inputs, true);
        EXPECT_EQ(first.dq, next.dq) << "run " << i;
        EXPECT_EQ(first.dk, next.dk) << "run " << i;
        EXPECT_EQ(first.dv, next.dv) << "run " << i;
      }
    }
  }
}

ATTNBENCH_GPU_SUITE(HopperBackward, forward_gpu_kernels());

}  // namespace
}  // namespace attnbench::kernels
