// The CPU flash kernel against the double-precision oracle: every length around tile edges, random problems, odd
// inputs.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "kernels/device/cpu_device.hpp"
#include "kernels/kernel.hpp"
#include "kernels/oracle/oracle.hpp"

namespace attnbench::kernels {

const KernelInfo& cpu_flash();

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

enum class Layout { kDense, kTransposed, kPadded };

/// A tensor that owns its bytes. kTransposed has the head dimension outermost (innermost stride != 1), kPadded leaves
/// gaps between rows.
class HostTensor {
 public:
  HostTensor(std::array<std::int64_t, 4> extent, Dtype dtype, Layout layout) {
    tensor_.extent = extent;
    tensor_.dtype = dtype;
    std::int64_t size = extent[0] * extent[1] * extent[2] * extent[3];
    if (layout == Layout::kDense) tensor_.stride = dense_strides(extent);
    if (layout == Layout::kTransposed) {
      tensor_.stride = {extent[2] * extent[1], extent[2], 1, extent[0] * extent[1] * extent[2]};
    }
    if (layout == Layout::kPadded) {
      const std::int64_t row = extent[3] + 3;
      tensor_.stride = {extent[2] * extent[1] * row, row, extent[1] * row, 1};
      size = extent[0] * extent[1] * extent[2] * row;
    }
    bytes_.assign(static_cast<std::size_t>(size) * size_of(dtype), 0xff);
    tensor_.data = bytes_.data();
  }
  HostTensor(HostTensor&& other) noexcept = default;

  const Tensor& view() const { return tensor_; }

  void set(std::array<std::int64_t, 4> at, float value) {
    const std::size_t i = offset(at);
    if (tensor_.dtype == Dtype::kFp32) static_cast<float*>(tensor_.data)[i] = value;
    if (tensor_.dtype == Dtype::kBf16) static_cast<Bf16*>(tensor_.data)[i] = to_bf16(value);
    if (tensor_.dtype == Dtype::kFp16) static_cast<Fp16*>(tensor_.data)[i] = to_fp16(value);
  }
  float get(std::array<std::int64_t, 4> at) const {
    const std::size_t i = offset(at);
    if (tensor_.dtype == Dtype::kBf16) return to_float(static_cast<Bf16*>(tensor_.data)[i]);
    if (tensor_.dtype == Dtype::kFp16) return to_float(static_cast<Fp16*>(tensor_.data)[i]);
    return static_cast<float*>(tensor_.data)[i];
  }
  template <typename F>
  void fill(F value) {
    each([&](std::array<std::int64_t, 4> at) { set(at, value(at)); });
  }
  /// Elements in dense row-major order.
  std::vector<float> values() const {
    std::vector<float> all;
    each([&](std::array<std::int64_t, 4> at) { all.push_back(get(at)); });
    return all;
  }

 private:
  template <typename F>
  void each(F f) const {
    const auto& e = tensor_.extent;
    for (std::int64_t b = 0; b < e[0]; ++b)
      for (std::int64_t h = 0; h < e[1]; ++h)
        for (std::int64_t s = 0; s < e[2]; ++s)
          for (std::int64_t d = 0; d < e[3]; ++d) f(std::array<std::int64_t, 4>{b, h, s, d});
  }
  std::size_t offset(std::array<std::int64_t, 4> at) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += at[i] * tensor_.stride[i];
    return static_cast<std::size_t>(sum);
  }

  Tensor tensor_;
  std::vector<unsigned char> bytes_;
};

/// One problem with its tensors: inputs N(0, 1), outputs and scratch poisoned with NaN bits.
struct Case {
  Case(const Problem& p, unsigned seed, Layout layout = Layout::kDense)
      : problem(p),
        q({p.batch, p.heads, p.seq_q, p.head_dim}, p.dtype, layout),
        k({p.batch, p.kv_heads, p.seq_k, p.head_dim}, p.dtype, layout),
        v({p.batch, p.kv_heads, p.seq_k, p.head_dim}, p.dtype, layout),
        o(q.view().extent, p.dtype, layout),
        dout(q.view().extent, p.dtype, layout),
        dq(q.view().extent, p.dtype, layout),
        dk(k.view().extent, p.dtype, layout),
        dv(k.view().extent, p.dtype, layout),
        lse(static_cast<std::size_t>(p.batch * p.heads * p.seq_q), kNan) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (HostTensor* t : {&q, &k, &v, &dout}) t->fill([&](auto) { return normal(generator); });
  }

  void run(int threads = 2) {
    CpuDevice device(threads);
    const KernelInfo& kernel = cpu_flash();
    const Footprint size = kernel.footprint(problem, Pass::kFwdBwd, {&device.facts(), threads, true});
    Buffer workspace = device.allocate(size.workspace_bytes).value();
    Buffer saved = device.allocate(size.saved_bytes).value();
    for (const Buffer* buffer : {&workspace, &saved}) {
      if (buffer->data() != nullptr) std::memset(buffer->data(), 0xff, buffer->bytes());
    }
    AttentionArgs args{problem,   q.view(),  k.view(),  v.view(),     o.view(),         lse.data(), dout.view(),
                       dq.view(), dk.view(), dv.view(), saved.data(), workspace.data(), true};
    auto prepared = prepare(kernel, args, Pass::kFwdBwd, device);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message;
    ASSERT_TRUE(launch(**prepared, Pass::kFwdBwd).has_value());
  }

  Problem problem;
  HostTensor q, k, v, o, dout, dq, dk, dv;
  std::vector<float> lse;
};

std::string describe(const Problem& p) {
  return "B" + std::to_string(p.batch) + " H" + std::to_string(p.heads) + "/" + std::to_string(p.kv_heads) + " Sq" +
         std::to_string(p.seq_q) + " Sk" + std::to_string(p.seq_k) + " D" + std::to_string(p.head_dim) + " " +
         std::string(to_string(p.dtype)) + (p.causal ? " causal" : "") + " window " + std::to_string(p.window_left);
}

/// Largest error relative to the largest magnitude (at least 1); NaN and infinity must be where the oracle has them.
void expect_close(const std::vector<float>& got, const std::vector<double>& want, double tolerance, const char* name,
                  const Problem& p) {
  ASSERT_EQ(got.size(), want.size());
  double magnitude = 1;
  for (const double w : want) {
    if (std::isfinite(w)) magnitude = std::max(magnitude, std::abs(w));
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double g = static_cast<double>(got[i]);
    const bool same = std::isnan(want[i])   ? std::isnan(g)
                      : std::isinf(want[i]) ? g == want[i]
                                            : std::abs(g - want[i]) <= tolerance * magnitude;
    ASSERT_TRUE(same) << name << "[" << i << "] is " << g << ", not " << want[i] << ": " << describe(p);
  }
}

void expect_right(const Case& c) {
  const OracleInputs inputs{c.q.view(), c.k.view(), c.v.view(), c.dout.view()};
  const OracleForward forward = oracle_forward(c.problem, inputs);
  const OracleBackward backward = oracle_backward(c.problem, inputs);
  const Tolerance tolerance = cpu_flash().tolerance(c.problem);
  expect_close(c.o.values(), forward.o, tolerance.forward, "o", c.problem);
  expect_close(c.lse, forward.lse, tolerance.forward, "lse", c.problem);
  expect_close(c.dq.values(), backward.dq, tolerance.backward, "dq", c.problem);
  expect_close(c.dk.values(), backward.dk, tolerance.backward, "dk", c.problem);
  expect_close(c.dv.values(), backward.dv, tolerance.backward, "dv", c.problem);
}

Problem make_problem(std::int64_t seq_q, std::int64_t seq_k, std::int64_t head_dim, bool causal) {
  Problem p;
  p.seq_q = seq_q;
  p.seq_k = seq_k;
  p.head_dim = head_dim;
  p.causal = causal;
  p.scale = default_scale(head_dim);
  return p;
}

void run_and_check(Case& c, int threads = 2) {
  c.run(threads);
  expect_right(c);
}

TEST(Flash, MatchesTheOracleAtEveryLengthFrom1To130) {
  for (std::int64_t length = 1; length <= 130; ++length) {
    for (const bool causal : {false, true}) {
      Case square(make_problem(length, length, 8, causal), static_cast<unsigned>(length));
      run_and_check(square);
      Case cross(make_problem(length, 131 - length, 5, causal), static_cast<unsigned>(length));
      run_and_check(cross, 1);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Flash, MatchesTheOracleAroundTheEdgesOfItsBlocks) {
  for (const std::int64_t length : {95, 96, 97, 127, 128, 129, 191, 192, 193, 383, 384, 385, 400}) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t head_dim : {16, 64}) {
        Case square(make_problem(length, length, head_dim, causal), 7);
        run_and_check(square);
      }
      Case window(make_problem(length, length + 30, 24, causal), 8);
      window.problem.window_left = 57;
      run_and_check(window, 3);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Flash, MatchesTheOracleAtEveryHeadDimension) {
  for (std::int64_t head_dim = 1; head_dim <= 256; head_dim += head_dim < 72 ? 1 : 23) {
    Case c(make_problem(37, 53, head_dim, true), static_cast<unsigned>(head_dim));
    run_and_check(c);
    if (HasFatalFailure()) return;
  }
  Case widest(make_problem(130, 200, 256, true), 3);
  run_and_check(widest);
}

TEST(Flash, MatchesTheOracleOnRandomProblems) {
  std::mt19937 generator(20);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(generator);
  };
  for (unsigned trial = 0; trial < 150; ++trial) {
    Problem p = make_problem(pick(1, 260), pick(1, 260), pick(1, 80), pick(0, 1) == 1);
    p.batch = pick(1, 2);
    p.kv_heads = pick(1, 3);
    p.heads = p.kv_heads * pick(1, 3);
    p.dtype = std::array{Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}[static_cast<std::size_t>(pick(0, 2))];
    if (pick(0, 1) == 1) p.window_left = pick(0, 100);
    Case c(p, trial, std::array{Layout::kDense, Layout::kTransposed, Layout::kPadded}[trial % 3]);
    run_and_check(c, static_cast<int>(pick(1, 5)));
    if (HasFatalFailure()) return;
  }
}

TEST(Flash, AQueryWithoutKeysGivesZeroAndMinusInfinity) {
  Case few_keys(make_problem(5, 2, 16, true), 1);
  run_and_check(few_keys);
  EXPECT_EQ(few_keys.lse[0], -kInf);
  Case no_keys(make_problem(3, 0, 16, false), 1);
  no_keys.run();
  for (const float value : no_keys.o.values()) EXPECT_EQ(value, 0.0f);
  for (const float value : no_keys.dq.values()) EXPECT_EQ(value, 0.0f);
  for (const float value : no_keys.lse) EXPECT_EQ(value, -kInf);
  Case no_queries(make_problem(0, 3, 16, false), 1);
  no_queries.run();
  for (const float value : no_queries.dk.values()) EXPECT_EQ(value, 0.0f);
  for (const float value : no_queries.dv.values()) EXPECT_EQ(value, 0.0f);
  Problem empty = make_problem(4, 4, 16, false);
  empty.batch = 0;
  Case no_batch(empty, 1);
  no_batch.run();
}

TEST(Flash, NanInAQueryRowStaysInThatRowAndTheKeysItSees) {
  for (const std::int64_t row : {0, 5, 100, 219}) {
    for (const std::int64_t window : {-1, 20}) {
      Problem p = make_problem(220, 220, 16, true);
      p.window_left = window;
      Case c(p, 2);
      c.q.set({0, 0, row, 3}, kNan);
      run_and_check(c);
      Case gradient(p, 2);
      gradient.dout.set({0, 0, row, 3}, kNan);
      run_and_check(gradient);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Flash, NanWithAPayloadIsStillNan) {
  Case c(make_problem(9, 9, 8, true), 2);
  const std::uint32_t bits = 0x7fc00001u;
  float payload;
  std::memcpy(&payload, &bits, sizeof payload);
  c.q.set({0, 0, 4, 0}, payload);
  run_and_check(c);
}

TEST(Flash, WhatMaskedPositionsHoldNeverLeaks) {
  for (const float poison : {kNan, kInf, -kInf}) {
    for (const std::int64_t key : {1, 60, 100, 219}) {
      Problem p = make_problem(220, 220, 16, true);
      p.window_left = 20;
      Case c(p, 3);
      for (std::int64_t d = 0; d < 16; ++d) {
        c.v.set({0, 0, key, d}, poison);
        if (key % 2 == 1) c.k.set({0, 0, key, d}, poison);
      }
      c.run();
      const std::vector<float> o = c.o.values();
      const std::vector<float> dq = c.dq.values();
      for (std::int64_t row = 0; row < p.seq_q; ++row) {
        const KeyRange seen = visible_keys(p, row);
        if (key >= seen.begin && key < seen.end) continue;
        for (std::int64_t d = 0; d < 16; ++d) {
          ASSERT_TRUE(std::isfinite(o[static_cast<std::size_t>(row * 16 + d)])) << "row " << row << " key " << key;
          ASSERT_TRUE(std::isfinite(dq[static_cast<std::size_t>(row * 16 + d)])) << "row " << row << " key " << key;
        }
      }
    }
  }
}

TEST(Flash, EqualHugeLogitsGiveTheMeanOfTheValues) {
  for (const bool causal : {false, true}) {
    for (const float value : {1000.0f, 133120.0f, 1e19f, 3e30f}) {
      Problem p = make_problem(70, 70, 64, causal);
      Case c(p, 4);
      c.q.fill([&](auto) { return value; });
      c.k.fill([&](auto) { return value; });
      c.run();
      const std::vector<float> o = c.o.values();
      const std::vector<float> v = c.v.values();
      for (std::int64_t row = 0; row < p.seq_q; ++row) {
        const KeyRange seen = visible_keys(p, row);
        for (std::size_t d = 0; d < 64; ++d) {
          double mean = 0;
          for (std::int64_t key = 0; key < seen.end; ++key) {
            mean += static_cast<double>(v[static_cast<std::size_t>(key) * 64 + d]);
          }
          mean /= static_cast<double>(seen.end);
          ASSERT_NEAR(static_cast<double>(o[static_cast<std::size_t>(row) * 64 + d]), mean, 1e-5) << value;
        }
      }
      for (const float g : c.dv.values()) ASSERT_TRUE(std::isfinite(g)) << value;
    }
  }
}

TEST(Flash, GradientsOfEqualHugeLogitsMatchTheOracle) {
  Case c(make_problem(50, 50, 16, true), 5);
  c.q.fill([](auto) { return 100000.0f; });
  c.k.fill([](auto) { return 100000.0f; });
  c.run();
  const OracleBackward want = oracle_backward(c.problem, {c.q.view(), c.k.view(), c.v.view(), c.dout.view()});
  expect_close(c.dv.values(), want.dv, 2e-5, "dv", c.problem);
}

TEST(Flash, VeryNegativeScoresWeighNothing) {
  Case c(make_problem(6, 200, 8, true), 6);
  c.q.fill([](auto at) { return at[3] == 0 ? 200.0f : 0.0f; });
  c.k.fill([](auto at) { return at[2] < 100 ? -283.0f : 1.0f; });
  run_and_check(c);
  Case all(make_problem(130, 130, 8, true), 6);
  all.q.fill([](auto at) { return at[3] == 0 ? 200.0f : 0.0f; });
  all.k.fill([](auto) { return -283.0f; });
  all.run();
  const OracleForward want = oracle_forward(all.problem, {all.q.view(), all.k.view(), all.v.view(), all.dout.view()});
  expect_close(all.o.values(), want.o, 2e-5, "o", all.problem);
  expect_close(all.lse, want.lse, 2e-5, "lse", all.problem);
}

TEST(Flash, MatchesTheOracleOnEveryInstructionSetThatWasCompiledIn) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (const std::int64_t head_dim : {1, 7, 16, 40, 65}) {
      for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
        Problem p = make_problem(101, 130, head_dim, true);
        p.dtype = dtype;
        Case c(p, 10);
        SCOPED_TRACE(hwy::TargetName(target));
        run_and_check(c);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(Flash, IsBitwiseEqualOverRuns) {
  Problem p = make_problem(300, 300, 32, true);
  p.batch = 3;
  Case first(p, 9);
  first.run(4);
  for (int repeat = 0; repeat < 10; ++repeat) {
    Case again(p, 9);
    again.run(4);
    EXPECT_EQ(again.o.values(), first.o.values());
    EXPECT_EQ(again.lse, first.lse);
    EXPECT_EQ(again.dq.values(), first.dq.values());
    EXPECT_EQ(again.dk.values(), first.dk.values());
    EXPECT_EQ(again.dv.values(), first.dv.values());
  }
}

TEST(Flash, RefusesAHeadDimensionAbove256ByName) {
  const auto reason = cpu_flash().supports(make_problem(1, 1, 257, false), Pass::kFwd, {});
  ASSERT_TRUE(reason.has_value());
  EXPECT_NE(reason->find("257"), std::string::npos);
}

}  // namespace
}  // namespace attnbench::kernels
