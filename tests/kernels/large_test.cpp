// The cases of the list that are large: T17, T18, T19, T21 and T22, at their sizes, in memory that is mostly only
// promised. Skipped under the sanitizers, which shadow what is touched: T18, T19 and the scores of T22.
#include <cmath>
#include <limits>

#include "kernel_case.hpp"
#include "kernels/cpu/flash_job.hpp"
#include "kernels/device/cpu_device.hpp"
#include "kernels/work.hpp"
#include "large_case.hpp"

namespace attnbench::kernels {
namespace {

#ifdef ATTNBENCH_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Large : public CpuKernel {};

Tensor dense(float* data, const Index4& extent) { return {data, Dtype::kFp32, extent, dense_strides(extent)}; }

/// One batch of a tensor.
Tensor batch_of(Tensor tensor, std::int64_t b) {
  tensor.data = static_cast<float*>(tensor.data) + b * tensor.stride[0];
  tensor.extent[0] = 1;
  return tensor;
}

TEST_P(Large, T17OffsetsOfNoTensorAreThirtyTwoBits) {
  // The two batches of all eight tensors are 2^31 + 64 elements apart.
  Problem p = make_problem(3, 4, 8, true);
  p.batch = 2;
  constexpr std::int64_t kApart = (std::int64_t{1} << 31) + 64;
  const Promised far(static_cast<std::size_t>(kApart + 1024) * sizeof(float));
  const Inputs inputs = random_inputs(p, 8);
  std::int64_t next = 0;
  const auto place = [&](const Index4& extent) {
    Tensor tensor = dense(far.floats() + 64 * next++, extent);
    tensor.stride[0] = kApart;
    return tensor;
  };
  const auto copy = [&](const HostTensor& from) {
    const Tensor to = place(from.view().extent);
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t i = 0; i < to.extent[2] * 8; ++i) {
        static_cast<float*>(to.data)[b * kApart + i] = from.get({b, 0, i / 8, i % 8});
      }
    }
    return to;
  };
  std::vector<float> lse(6);
  AttentionArgs args;
  args.problem = p;
  args.q = copy(inputs.q);
  args.k = copy(inputs.k);
  args.v = copy(inputs.v);
  args.dout = copy(inputs.dout);
  args.o = place(args.q.extent);
  args.dq = place(args.q.extent);
  args.dk = place(args.k.extent);
  args.dv = place(args.k.extent);
  args.lse = lse.data();
  run_on(kernel(), args, Pass::kFwdBwd, 2);
  const OracleForward forward = oracle_forward(p, inputs.oracle());
  const OracleBackward backward = oracle_backward(p, inputs.oracle());
  EXPECT_LE(error_of(values_of(args.o), forward.o), 2e-5);
  EXPECT_LE(error_of(lse, forward.lse), 2e-5);
  EXPECT_LE(error_of(values_of(args.dq), backward.dq), 2e-5);
  EXPECT_LE(error_of(values_of(args.dk), backward.dk), 2e-5);
  EXPECT_LE(error_of(values_of(args.dv), backward.dv), 2e-5);
}

TEST_P(Large, T18OneQueryOfManyBatchesHasItsGradients) {
  if (kSanitized) GTEST_SKIP() << "takes several GiB under a sanitizer";
  Problem p = make_problem(1, 2, 128);
  p.batch = 8300;
  p.heads = p.kv_heads = 16;
  const Index4 query{p.batch, p.heads, 1, 128}, key{p.batch, p.heads, 2, 128};
  const std::int64_t size = p.batch * p.heads * 128;
  const Promised in(static_cast<std::size_t>(6 * size) * sizeof(float));
  const Promised out(static_cast<std::size_t>(6 * size) * sizeof(float));
  fill_quickly(in.floats(), 6 * size, 18);
  std::fill_n(out.floats(), 6 * size, kNan);
  std::vector<float> lse(static_cast<std::size_t>(p.batch * p.heads), kNan);
  AttentionArgs args;
  args.problem = p;
  args.q = dense(in.floats(), query);
  args.dout = dense(in.floats() + size, query);
  args.k = dense(in.floats() + 2 * size, key);
  args.v = dense(in.floats() + 4 * size, key);
  args.o = dense(out.floats(), query);
  args.dq = dense(out.floats() + size, query);
  args.dk = dense(out.floats() + 2 * size, key);
  args.dv = dense(out.floats() + 4 * size, key);
  args.lse = lse.data();
  run_on(kernel(), args, Pass::kFwdBwd, 2);
  std::int64_t missing = 0;
  for (std::int64_t i = 0; i < 6 * size; ++i) missing += std::isfinite(out.floats()[i]) ? 0 : 1;
  EXPECT_EQ(missing, 0) << "elements were not written";
  Problem one = p;
  one.batch = 1;
  for (std::int64_t b = 0; b < p.batch; b += b + 20 < p.batch ? 20 : 1) {
    const OracleInputs inputs{batch_of(args.q, b), batch_of(args.k, b), batch_of(args.v, b), batch_of(args.dout, b)};
    const OracleForward forward = oracle_forward(one, inputs);
    const OracleBackward backward = oracle_backward(one, inputs);
    ASSERT_LE(error_of(values_of(batch_of(args.o, b)), forward.o), 2e-5) << b;
    ASSERT_LE(error_of({lse.begin() + b * 16, lse.begin() + b * 16 + 16}, forward.lse), 2e-5) << b;
    ASSERT_LE(error_of(values_of(batch_of(args.dq, b)), backward.dq), 2e-5) << b;
    ASSERT_LE(error_of(values_of(batch_of(args.dk, b)), backward.dk), 2e-5) << b;
    ASSERT_LE(error_of(values_of(batch_of(args.dv, b)), backward.dv), 2e-5) << b;
  }
}

/// A part of a kernel's workspace with the same number of bytes for each key/value head.
struct PerHead {
  std::size_t offset, bytes;
};

std::vector<PerHead> parts_per_head(const KernelInfo& kernel, const Problem& p, int threads) {
  const auto head = static_cast<std::size_t>(p.seq_k * p.head_dim) * sizeof(float);
  const std::size_t all = head * static_cast<std::size_t>(p.batch * p.kv_heads);
  if (kernel.name == "naive") return {{0, head}, {all, head}, {2 * all, head}};  // k, v, k transposed
  if (kernel.name == "blas") return {{0, 0}};                                    // copies that fp32 rows do not need
  const FlashForwardPlan plan = plan_flash_forward(p, threads, flash_isa());
  return {{plan.keys, static_cast<std::size_t>(plan.key_floats) * sizeof(float)},
          {plan.values, static_cast<std::size_t>(plan.value_floats) * sizeof(float)}};
}

TEST_P(Large, T19KeysOf1600By16HeadsOf729By72AreFound) {
  // K and V have the shape of the case, 1.3e9 elements and 5.4e9 bytes each, but half the batch for the loops of naive;
  // one query a head, since all 729 of them would take minutes. 128 heads lie in memory, again and again: the copies
  // that a kernel makes then repeat as well.
  if (kSanitized) GTEST_SKIP() << "address space of 20 GiB does not go with shadow memory";
  Problem p = make_problem(1, 729, 72);
  p.batch = kernel().name == "naive" ? 800 : 1600;
  p.heads = p.kv_heads = 16;
  const std::int64_t heads = p.batch * 16;
  const auto count = static_cast<std::size_t>(heads);
  constexpr std::size_t kPeriod = 128;
  const std::size_t head = 729 * 72 * sizeof(float);
  const Promised keys(count * head), values(count * head);
  keys.repeat(0, count * head, kPeriod * head);
  values.repeat(0, count * head, kPeriod * head);
  fill_quickly(keys.floats(), kPeriod * 729 * 72, 1);
  fill_quickly(values.floats(), kPeriod * 729 * 72, 2);
  const Index4 query{p.batch, p.heads, 1, 72}, key{p.batch, p.heads, 729, 72};
  std::vector<float> q(count * 72), o(count * 72, kNan), lse(count, kNan);
  fill_quickly(q.data(), static_cast<std::int64_t>(q.size()), 3);
  AttentionArgs args;
  args.problem = p;
  args.q = dense(q.data(), query);
  args.k = dense(keys.floats(), key);
  args.v = dense(values.floats(), key);
  args.o = dense(o.data(), query);
  args.lse = lse.data();
  const CpuDevice device(2);
  const Promised workspace(kernel().footprint(p, Pass::kFwd, {&device.facts(), 2, false}).workspace_bytes);
  for (const PerHead& part : parts_per_head(kernel(), p, 2)) {
    if (part.bytes > 0) workspace.repeat(part.offset, count * part.bytes, kPeriod * part.bytes);
  }
  run_on(kernel(), args, Pass::kFwd, 2, &workspace);
  std::vector<QueryRow> rows;
  for (std::int64_t at = 0; at < heads; at += at + 61 < heads ? 61 : 1) rows.push_back({at / 16, at % 16, 0});
  const auto truth = oracle_rows(p, {args.q, args.k, args.v, {}}, rows, Pass::kFwd);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t at = rows[i].batch * 16 + rows[i].head;
    ASSERT_LE(error_of({o.begin() + at * 72, o.begin() + at * 72 + 72}, truth[i].o), 2e-5) << "head " << at;
    ASSERT_LE(error_of({lse[static_cast<std::size_t>(at)]}, {truth[i].lse}), 2e-5) << "head " << at;
  }
  for (const float value : o) ASSERT_TRUE(std::isfinite(value));
}

TEST_P(Large, T21AQuarterOfAMillionKeysOrQueriesAreRight) {
  for (const bool causal : {false, true}) {
    expect_like_oracle(kernel(), make_problem(4, 262149, 4, causal), random_inputs(make_problem(4, 262149, 4), 21));
    expect_like_oracle(kernel(), make_problem(262149, 3, 4, causal), random_inputs(make_problem(262149, 3, 4), 22));
  }
}

TEST_P(Large, T21AQuarterOfAMillionOfBothAreRightInAWindow) {
  Problem p = make_problem(262144, 262144, 4, true);
  p.window_left = 40;
  if (kernel().materialises) GTEST_SKIP() << "the scores alone take 256 GiB, see T22";
  const Inputs inputs = random_inputs(p, 23);
  const Outputs out = run_kernel(kernel(), p, inputs);
  std::vector<QueryRow> rows;
  std::vector<std::int64_t> keys;
  for (std::int64_t i = 0; i < p.seq_q; i += i + 331 < p.seq_q ? 331 : 1) rows.push_back({0, 0, i});
  for (const QueryRow& row : rows) keys.push_back(row.query);
  const auto row_truth = oracle_rows(p, inputs.oracle(), rows, Pass::kFwdBwd);
  const auto key_truth = oracle_keys(p, inputs.oracle(), 0, 0, keys);
  const auto part = [](const std::vector<float>& all, std::int64_t at) {
    return std::vector<float>(all.begin() + at * 4, all.begin() + at * 4 + 4);
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t at = rows[i].query;
    ASSERT_LE(error_of(part(out.o, at), row_truth[i].o), 2e-5) << at;
    ASSERT_LE(error_of({out.lse[static_cast<std::size_t>(at)]}, {row_truth[i].lse}), 2e-5) << at;
    ASSERT_LE(error_of(part(out.dq, at), row_truth[i].dq), 2e-5) << at;
    ASSERT_LE(error_of(part(out.dk, at), key_truth[i].dk), 2e-5) << at;
    ASSERT_LE(error_of(part(out.dv, at), key_truth[i].dv), 2e-5) << at;
  }
}

TEST_P(Large, T22FootprintsAreCountedIn64Bits) {
  const CpuDevice device(2);
  const Target target{&device.facts(), 2, false};
  // b h roundup(Sq, 128) max(d, 32) just above 2^31. Nothing is allocated: the planner refuses what does not fit.
  Problem p = make_problem(16385, 16385, 128);
  p.batch = 64;
  p.heads = p.kv_heads = 16;
  const std::uint64_t tensor = std::uint64_t{2147614720} * 4;        // 64 x 16 x 16385 x 128 floats
  const std::uint64_t scores = std::uint64_t{1024} * 268468225 * 4;  // 64 x 16 x 16385^2 floats
  EXPECT_EQ(tensor_bytes(p, Pass::kFwdBwd), 8 * tensor + 1024 * 16385 * 4);
  const Footprint size = kernel().footprint(p, Pass::kFwdBwd, target);
  if (kernel().materialises) {
    EXPECT_EQ(size.saved_bytes, scores);
    EXPECT_EQ(size.workspace_bytes, scores + 5 * tensor);  // fp32 copies of five tensors, and dS
  } else {
    EXPECT_EQ(size.saved_bytes, 2u * 1024 * 16385 * 4);  // two floats a row
    EXPECT_GE(size.workspace_bytes, 2 * tensor);         // packed K and V
    EXPECT_LE(size.workspace_bytes, 2 * tensor + tensor / 50);
  }
  // One head whose scores alone are above 2^31: 46341^2 floats.
  const Footprint one = kernel().footprint(make_problem(46341, 46341, 16), Pass::kFwd, target);
  if (kernel().materialises) {
    EXPECT_EQ(one.saved_bytes, std::uint64_t{2147488281} * 4 / 64 * 64 + 64);
  }
}

TEST_P(Large, T22ScoresAbove2To31ElementsAreReached) {
  // A window of one key touches one page of each row of the promised scores: 46400^2 elements, 180 MiB touched.
  if (kernel().name == "blas") GTEST_SKIP() << "fills the whole matrix, which is 8 GiB";
  if (kSanitized) GTEST_SKIP() << "shadow memory of what is touched is too much";
  Problem p = make_problem(46400, 46400, 4, true);
  p.window_left = 0;
  const Inputs inputs = random_inputs(p, 24);
  const Index4 extent = inputs.q.view().extent;
  HostTensor o(extent, p.dtype), dq(extent, p.dtype), dk(extent, p.dtype), dv(extent, p.dtype);
  std::vector<float> lse(46400);
  AttentionArgs args{p,          inputs.q.view(),    inputs.k.view(), inputs.v.view(), o.view(),
                     lse.data(), inputs.dout.view(), dq.view(),       dk.view(),       dv.view()};
  run_on(kernel(), args, Pass::kFwdBwd, 2);
  // Each row sees its own key alone: o = v, dv = dout, no gradient of q and k.
  const std::vector<double> zero(static_cast<std::size_t>(p.seq_q * 4), 0.0);
  const std::vector<float> v = inputs.v.values(), dout = inputs.dout.values();
  EXPECT_LE(error_of(o.values(), {v.begin(), v.end()}), 1e-6);
  EXPECT_LE(error_of(dv.values(), {dout.begin(), dout.end()}), 1e-6);
  EXPECT_LE(error_of(dq.values(), zero), 1e-5);
  EXPECT_LE(error_of(dk.values(), zero), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Large,
                         ::testing::ValuesIn(cpu_backend().kernels().begin(), cpu_backend().kernels().end()),
                         kernel_name);

}  // namespace
}  // namespace attnbench::kernels
