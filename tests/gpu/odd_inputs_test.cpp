// Inputs that broke other people's kernels, given to every CUDA kernel of this project.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/gpu/gpu_case.hpp"

namespace attnbench::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class OddInputs : public GpuKernel {
 protected:
  void agrees(const Problem& p, const Inputs& inputs) { expect_like_oracle_on_gpu(kernel(), p, inputs); }
  void agrees(const Problem& p) { agrees(p, random_inputs(p, 11)); }
};

void fill_rows(HostTensor& tensor, std::int64_t begin, std::int64_t end, float value) {
  const Index4 e = tensor.view().extent;
  for (std::int64_t b = 0; b < e[0]; ++b) {
    for (std::int64_t h = 0; h < e[1]; ++h) {
      for (std::int64_t s = begin; s < end; ++s) {
        for (std::int64_t d = 0; d < e[3]; ++d) tensor.set({b, h, s, d}, value);
      }
    }
  }
}

constexpr std::initializer_list<Dtype> kBoth = {Dtype::kFp32, Dtype::kBf16};

TEST_P(OddInputs, QueriesAboveTheDiagonalSeeNothing) {
  for (const Dtype dtype : taken(kBoth)) {
    const Problem p = make_problem(5, 2, 64, true, dtype);
    const auto out = run_on_gpu(kernel(), p, random_inputs(p, 11));
    ASSERT_TRUE(out);
    for (std::size_t i = 0; i < 3 * 64; ++i) {
      EXPECT_EQ(out->o[i], 0.0f);
      EXPECT_EQ(out->dq[i], 0.0f);
    }
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(out->lse[i], -kInf);
    agrees(p);
    agrees(make_problem(76, 1, 64, true, dtype));
    agrees(make_problem(300, 20, 64, true, dtype));
  }
}

TEST_P(OddInputs, EmptyExtentsGiveZerosAndLaunchNothingEmpty) {
  for (const Dtype dtype : taken(kBoth)) {
    for (const bool causal : {false, true}) {
      agrees(make_problem(7, 0, 64, causal, dtype));
      agrees(make_problem(0, 7, 64, causal, dtype));
      agrees(make_problem(0, 0, 64, causal, dtype));
      Problem p = make_problem(7, 7, 64, causal, dtype);
      p.batch = 0;
      agrees(p);
      p.batch = 1;
      p.heads = p.kv_heads = 0;
      agrees(p);
    }
  }
}

TEST_P(OddInputs, OneQueryAndOneKeyGiveV) {
  for (const Dtype dtype : taken(kBoth)) {
    const Problem p = make_problem(1, 1, 64, false, dtype);
    const Inputs inputs = random_inputs(p, 12);
    const auto out = run_on_gpu(kernel(), p, inputs);
    ASSERT_TRUE(out);
    if (dtype == Dtype::kBf16) {  // a kernel that splits fp32 into parts keeps 2^-18 of it
      EXPECT_EQ(out->o, inputs.v.values());
      EXPECT_EQ(out->dv, inputs.dout.values());
    }
    agrees(p, inputs);
  }
}

TEST_P(OddInputs, AVeryNegativeScoreStillOutweighsMaskedKeys) {
  for (const Dtype dtype : taken(kBoth)) {
    const Problem p = make_problem(40, 40, 64, true, dtype);
    Inputs inputs = random_inputs(p, 13);
    // Scores of -20480. k is small: dq is k times a sum of ds that is 0, and all that is left is ds's rounding.
    fill_rows(inputs.q, 0, 40, -1280.0f);
    fill_rows(inputs.k, 0, 40, 2.0f);
    agrees(p, inputs);
    const Problem one = make_problem(1, 128, 64, false, dtype);
    Inputs row = random_inputs(one, 14);
    fill_rows(row.q, 0, 1, -900.0f);
    fill_rows(row.k, 0, 128, 1.0f);
    agrees(one, row);
  }
}

/// Logits of one size everywhere, from small to beyond fp32 on either side: weights are 1 / Sk in both passes.
TEST_P(OddInputs, EqualHugeLogitsGiveTheMeanOfVAndOfItsGradient) {
  for (const Dtype dtype : taken(kBoth)) {
    for (const bool causal : {false, true}) {
      for (const float value : {1000.0f, 133120.0f, 1e12f, 1e18f, 3e38f}) {
        for (const float sign : {1.0f, -1.0f}) {
          for (const bool deterministic : {false, true}) {
            SCOPED_TRACE(std::string(to_string(dtype)) + (causal ? " causal " : " ") + std::to_string(sign * value));
            const Problem p = make_problem(70, 200, 64, causal, dtype);
            Inputs inputs = random_inputs(p, 15);
            fill_rows(inputs.q, 0, 70, value);
            fill_rows(inputs.k, 0, 200, sign * value);
            const auto out = run_on_gpu(kernel(), p, inputs, {.deterministic = deterministic});
            ASSERT_TRUE(out);
            const double bound = gpu_bound(kernel(), p);
            const OracleForward truth = oracle_forward(p, inputs.oracle());
            EXPECT_LE(error_of(out->o, truth.o), bound) << "o";
            EXPECT_LE(error_of(out->lse, truth.lse), bound) << "lse";
            // dq and dk are these values times a sum of ds that is zero: nothing but its rounding.
            EXPECT_LE(error_of(out->dv, oracle_backward(p, inputs.oracle()).dv), bound) << "dv";
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

/// One huge factor, or a huge logit beside small ones: what overflows is only a part of what is summed.
TEST_P(OddInputs, OneHugeLogitTakesTheWholeWeight) {
  for (const Dtype dtype : taken(kBoth)) {
    for (const float value : {1e6f, 1e20f, 3e38f}) {
      SCOPED_TRACE(value);
      const Problem p = make_problem(70, 200, 64, false, dtype);
      Inputs inputs = random_inputs(p, 22);
      fill_rows(inputs.q, 0, 70, 1.0f);
      fill_rows(inputs.k, 131, 132, value);
      const auto out = run_on_gpu(kernel(), p, inputs);
      ASSERT_TRUE(out);
      const double bound = gpu_bound(kernel(), p);
      EXPECT_LE(error_of(out->o, oracle_forward(p, inputs.oracle()).o), bound) << "o";
      EXPECT_LE(error_of(out->dv, oracle_backward(p, inputs.oracle()).dv), bound) << "dv";
    }
  }
}

/// The weights of a row sum to 1, so the rows of dv to those of dout: the backward, too, must make such weights.
/// Large logits leave little of their differences to fp32, but this holds all the same.
TEST_P(OddInputs, WeightsSumToOneHoweverLargeTheLogits) {
  for (const Dtype dtype : taken(kBoth)) {
    for (const float lift : {1.0f, 32.0f, -256.0f, 4096.0f, -65536.0f}) {
      for (const bool deterministic : {false, true}) {
        SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(lift));
        const Problem p = make_problem(60, 90, 64, true, dtype);
        Inputs inputs = random_inputs(p, 23);
        for (std::int64_t s = 0; s < p.seq_q; ++s) inputs.q.set({0, 0, s, 0}, 8.0f);
        for (std::int64_t s = 0; s < p.seq_k; ++s) inputs.k.set({0, 0, s, 0}, lift);
        const auto out = run_on_gpu(kernel(), p, inputs, {.deterministic = deterministic});
        ASSERT_TRUE(out);
        const std::vector<float> dout = inputs.dout.values();
        for (std::size_t d = 0; d < 64; ++d) {
          double got = 0, wanted = 0;
          for (std::size_t s = d; s < out->dv.size(); s += 64) got += static_cast<double>(out->dv[s]);
          for (std::size_t s = d; s < dout.size(); s += 64) wanted += static_cast<double>(dout[s]);
          EXPECT_NEAR(got, wanted, gpu_bound(kernel(), p) * std::max(1.0, std::abs(wanted))) << "column " << d;
        }
        if (HasFailure()) return;
      }
    }
  }
}

/// P is 1, and dP - delta a difference of two equal numbers.
// dk is a sum over all queries of a difference of equal numbers: rounding alone grows with sqrt(Sq). At 1000 queries an
// fp32 loop on a CPU is at 3.4e-5 of the 5e-5 asked for, and a tensor core, which truncates, at 5.1e-5: that says
// nothing.
TEST_P(OddInputs, OneKeyTakesNoGradient) {
  for (const Dtype dtype : kBoth) {
    for (const std::int64_t queries : {1, 5, 37, 64, 85, 130, 300}) {
      for (const std::int64_t dim : {16, 64, 128, 256}) {
        const Problem p = make_problem(queries, 1, dim, false, dtype);
        agrees(p, random_inputs(p, static_cast<std::uint64_t>(queries)));
      }
    }
  }
}

TEST_P(OddInputs, InputsThreeTimesAsLargeKeepTheirGradients) {
  Problem p = make_problem(120, 120, 128, true, Dtype::kBf16);
  agrees(p, random_inputs(p, 16, Layout::kDense, 3.0));
}

TEST_P(OddInputs, KeysThatNobodySeesMayHoldAnything) {
  for (const Dtype dtype : taken(kBoth)) {
    for (const float odd : {kNan, kInf, -kInf}) {
      Problem p = make_problem(20, 90, 64, true, dtype);
      p.window_left = 9;  // keys 0 to 60 are visible to none
      Inputs inputs = random_inputs(p, 17);
      fill_rows(inputs.k, 0, 61, odd);
      fill_rows(inputs.v, 0, 61, odd);
      const auto out = run_on_gpu(kernel(), p, inputs);
      ASSERT_TRUE(out);
      const auto finite = [](float x) { return std::isfinite(x); };
      EXPECT_TRUE(std::all_of(out->o.begin(), out->o.end(), finite));
      EXPECT_TRUE(std::all_of(out->dq.begin(), out->dq.end(), finite));
      for (std::size_t i = 0; i < 61 * 64; ++i) ASSERT_TRUE(out->dk[i] == 0.0f && out->dv[i] == 0.0f);
      agrees(p, inputs);
    }
  }
}

TEST_P(OddInputs, QueriesThatSeeNothingMayHoldAnything) {
  for (const Dtype dtype : taken(kBoth)) {
    for (const float odd : {kNan, kInf}) {
      const Problem p = make_problem(90, 20, 64, true, dtype);  // queries 0 to 69 see nothing
      Inputs inputs = random_inputs(p, 18);
      fill_rows(inputs.q, 0, 70, odd);
      fill_rows(inputs.dout, 0, 70, odd);
      const auto out = run_on_gpu(kernel(), p, inputs);
      ASSERT_TRUE(out);
      const auto finite = [](float x) { return std::isfinite(x); };
      EXPECT_TRUE(std::all_of(out->dk.begin(), out->dk.end(), finite));
      EXPECT_TRUE(std::all_of(out->dv.begin(), out->dv.end(), finite));
      agrees(p, inputs);
    }
  }
}

TEST_P(OddInputs, NanInTheLastKeyReachesTheLastQueryAlone) {
  for (const Dtype dtype : taken(kBoth)) {
    const Problem p = make_problem(100, 100, 64, true, dtype);
    Inputs inputs = random_inputs(p, 19);
    const auto clean = run_on_gpu(kernel(), p, inputs);
    fill_rows(inputs.k, 99, 100, kNan);
    fill_rows(inputs.v, 99, 100, kNan);
    const auto out = run_on_gpu(kernel(), p, inputs);
    ASSERT_TRUE(clean && out);
    const double bound = gpu_bound(kernel(), p);
    for (std::size_t i = 0; i < 99 * 64; ++i) {
      ASSERT_LE(std::abs(out->o[i] - clean->o[i]), bound * std::max(1.0f, std::abs(clean->o[i]))) << "o at " << i;
      ASSERT_LE(std::abs(out->dq[i] - clean->dq[i]), bound * std::max(1.0f, std::abs(clean->dq[i]))) << "dq at " << i;
    }
    for (std::size_t i = 99 * 64; i < 100 * 64; ++i) ASSERT_TRUE(std::isnan(out->o[i]));
    EXPECT_TRUE(std::isnan(out->lse[99]));
  }
}

TEST_P(OddInputs, AMisalignedWorkspaceIsRefusedByName) {
  const Problem p = make_problem(64, 64, 64, false, Dtype::kFp32);
  const Target target{&gpu()->facts(), 1, false};
  if (const auto reason = kernel().supports(p, Pass::kFwd, target)) GTEST_SKIP() << *reason;
  const Footprint size = kernel().footprint(p, Pass::kFwd, target);
  if (size.workspace_bytes == 0) GTEST_SKIP() << "this kernel needs no workspace";
  const GpuBlock memory(64 * 64 * 4), workspace(size.workspace_bytes + 64), saved(size.saved_bytes);
  AttentionArgs args;
  args.problem = p;
  const Index4 extent{1, 1, 64, 64};
  args.q = args.k = args.v = args.o = Tensor{memory.data(), p.dtype, extent, dense_strides(extent)};
  args.lse = static_cast<float*>(memory.data());
  args.saved = saved.data();
  args.workspace = static_cast<char*>(workspace.data()) + 8;
  const auto prepared = prepare(kernel(), args, Pass::kFwd, *gpu());
  ASSERT_FALSE(prepared);
  EXPECT_NE(prepared.error().message.find("aligned to 64"), std::string::npos) << prepared.error().message;
}

ATTNBENCH_GPU_SUITE(OddInputs, own_gpu_kernels());

/// Runs a problem whose heads all hold the same values, so that no host has to make or check 2^31 of them.
class LargeOnGpu : public GpuKernel {
 protected:
  struct Repeated {
    GpuBlock block;
    Tensor tensor;
  };
  static Repeated repeat(const HostTensor& head, const Index4& extent) {
    const std::size_t bytes = static_cast<std::size_t>(head.view().size()) * size_of(head.view().dtype);
    const auto heads = static_cast<std::size_t>(extent[0] * extent[1]);
    Repeated all{GpuBlock(bytes * heads), {nullptr, head.view().dtype, extent, dense_strides(extent)}};
    all.tensor.data = all.block.data();
    // 64 heads per copy: large copies are what reaches the bus's rate.
    const std::size_t pack = std::min<std::size_t>(64, heads);
    std::vector<unsigned char> packed(bytes * pack);
    for (std::size_t i = 0; i < pack; ++i) std::memcpy(packed.data() + i * bytes, head.view().data, bytes);
    for (std::size_t i = 0; i < heads; i += pack) {
      const std::size_t count = std::min(pack, heads - i);
      EXPECT_TRUE(gpu()->upload(static_cast<char*>(all.tensor.data) + i * bytes, packed.data(), count * bytes));
    }
    return all;
  }

  static std::vector<float> head_of(const Tensor& t, std::int64_t head) {
    HostTensor one({1, 1, t.extent[2], t.extent[3]}, t.dtype);
    const std::size_t bytes = static_cast<std::size_t>(one.view().size()) * size_of(t.dtype);
    EXPECT_TRUE(
        gpu()->download(one.view().data, static_cast<char*>(t.data) + static_cast<std::size_t>(head) * bytes, bytes));
    return one.values();
  }

  void agrees(const Problem& p) {
    const Target target{&gpu()->facts(), 1, false};
    const Footprint size = kernel().footprint(p, Pass::kFwdBwd, target);
    const Index4 extent{p.batch, p.heads, p.seq_q, p.head_dim};
    const std::size_t tensor = static_cast<std::size_t>(p.batch * p.heads * p.seq_q * p.head_dim) * size_of(p.dtype);
    const std::size_t needed = 8 * tensor + size.workspace_bytes + size.saved_bytes + (std::size_t{1} << 30);
    if (gpu()->memory_free_bytes() < needed) GTEST_SKIP() << "needs " << (needed >> 30) << " GiB of device memory";
    Problem one = p;
    one.batch = one.heads = one.kv_heads = 1;
    const Inputs head = random_inputs(one, 21);
    const Repeated q = repeat(head.q, extent), k = repeat(head.k, extent), v = repeat(head.v, extent),
                   dout = repeat(head.dout, extent);
    HostTensor poison(head.q.view().extent, p.dtype);
    const Repeated o = repeat(poison, extent), dq = repeat(poison, extent), dk = repeat(poison, extent),
                   dv = repeat(poison, extent);
    const GpuBlock lse(static_cast<std::size_t>(p.batch * p.heads * p.seq_q) * 4), saved(size.saved_bytes),
        workspace(size.workspace_bytes);
    AttentionArgs args{p,           q.tensor,  k.tensor,  v.tensor,  o.tensor,     static_cast<float*>(lse.data()),
                       dout.tensor, dq.tensor, dk.tensor, dv.tensor, saved.data(), workspace.data(),
                       false};
    auto prepared = prepare(kernel(), args, Pass::kFwdBwd, *gpu());
    if (!prepared) GTEST_SKIP() << prepared.error().message;
    ASSERT_TRUE(launch(**prepared, Pass::kFwdBwd));
    const auto done = gpu()->synchronize();
    ASSERT_TRUE(done) << done.error().message;
    const OracleForward truth = oracle_forward(one, head.oracle());
    const OracleBackward gradients = oracle_backward(one, head.oracle());
    const double bound = gpu_bound(kernel(), p);
    const std::int64_t heads = p.batch * p.heads;
    for (const std::int64_t at : {std::int64_t{0}, heads / 2 - 1, heads / 2, heads - 2, heads - 1}) {
      SCOPED_TRACE("head " + std::to_string(at));
      EXPECT_LE(error_of(head_of(o.tensor, at), truth.o), bound);
      EXPECT_LE(error_of(head_of(dq.tensor, at), gradients.dq), bound);
      EXPECT_LE(error_of(head_of(dk.tensor, at), gradients.dk), bound);
      EXPECT_LE(error_of(head_of(dv.tensor, at), gradients.dv), bound);
    }
    for (const GpuBlock* block : {&o.block, &dq.block, &dk.block, &dv.block, &lse, &saved, &workspace}) {
      EXPECT_TRUE(block->guards_untouched());
    }
  }
};

TEST_P(LargeOnGpu, TensorsPast2To31ElementsAgree) {
  Problem p = make_problem(256, 256, 128, true, Dtype::kBf16);
  p.batch = 4200;
  p.heads = p.kv_heads = 16;
  agrees(p);
}

TEST_P(LargeOnGpu, AwkwardLengthsTimesManyHeadsAgree) {
  if (kernel().materialises) GTEST_SKIP() << "25600 matrices of 729 x 729 fill the device";
  Problem p = make_problem(729, 729, 72, false, Dtype::kBf16);
  p.batch = 1600;
  p.heads = p.kv_heads = 16;
  agrees(p);
}

ATTNBENCH_GPU_SUITE(LargeOnGpu, own_gpu_kernels());

}  // namespace
}  // namespace attnbench::kernels
