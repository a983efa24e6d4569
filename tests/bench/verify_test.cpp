// The check of a kernel's results: what is looked at, and how far it may be off.
#include "bench/measure/verify.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/measure/golden.hpp"

namespace attnbench::measure {
namespace {

using kernels::Dtype;
using kernels::Pass;
using kernels::Problem;
using testing::HasSubstr;

constexpr kernels::Tolerance kFp32{2e-5, 2e-5};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Problem problem_of(std::int64_t batch, std::int64_t length, std::int64_t dim, bool causal) {
  Problem p;
  p.batch = batch;
  p.seq_q = p.seq_k = length;
  p.head_dim = dim;
  p.causal = causal;
  p.scale = kernels::default_scale(dim);
  return p;
}

HostTensor tensor_of(const std::array<std::int64_t, 4>& extent, const std::vector<double>& values) {
  HostTensor tensor(extent, Dtype::kFp32);
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_element(tensor, static_cast<std::int64_t>(i), static_cast<float>(values[i]));
  }
  return tensor;
}

/// What a kernel without any fault would write.
Outputs right_outputs(const Problem& p, const Inputs& inputs, kernels::ThreadPool& pool) {
  const auto forward = kernels::oracle_forward(p, inputs.oracle(), &pool);
  const auto backward = kernels::oracle_backward(p, inputs.oracle(), &pool);
  Outputs outputs;
  outputs.o = tensor_of(query_extent(p), forward.o);
  outputs.lse.assign(forward.lse.begin(), forward.lse.end());
  outputs.dq = tensor_of(query_extent(p), backward.dq);
  outputs.dk = tensor_of(key_extent(p), backward.dk);
  outputs.dv = tensor_of(key_extent(p), backward.dv);
  return outputs;
}

TEST(Bounds, AreTheKernelsOwnWhereLogitsAreOrdinary) {
  for (const double lse : {0.0, 1.0, 15.9}) {
    const Bounds bounds = bounds_for(kFp32, lse);
    for (const double bound : {bounds.o, bounds.lse, bounds.dq, bounds.dk, bounds.dv}) EXPECT_EQ(bound, 2e-5) << lse;
  }
}

TEST(Bounds, GrowWithTheLogitsAndNeverBeyondTheirMost) {
  EXPECT_DOUBLE_EQ(bounds_for(kFp32, 100).o, 16 * 0x1p-17);  // an ulp of 64 .. 128
  EXPECT_LE(bounds_for(kFp32, 511).dk, 1e-3);
  for (const double lse : {1025.0, 3e6, 1e38, double{std::numeric_limits<float>::max()}}) {
    const Bounds bounds = bounds_for(kFp32, lse);
    for (const double bound : {bounds.o, bounds.dq, bounds.dk, bounds.dv}) EXPECT_EQ(bound, 1e-3) << lse;
    EXPECT_EQ(bounds.lse, 2e-5);  // relative to its own magnitude
  }
}

TEST(Bounds, OfSixteenBitTypesAreTheirOwn) {
  Problem p;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
    p.dtype = dtype;
    const kernels::Tolerance own = kernels::default_tolerance(p);
    EXPECT_EQ(bounds_for(own, 1e30).o, own.forward);
    EXPECT_EQ(bounds_for(own, 1e30).dv, own.backward);
  }
}

TEST(Compare, AResultThatIsNotFiniteHasNoErrorAndIsSaidToBeSo) {
  kernels::ThreadPool pool(1);
  const Problem p = problem_of(1, 9, 4, false);
  const Inputs inputs = make_inputs(p, Pass::kFwdBwd, 1, pool);
  const Reference reference = make_reference(p, Pass::kFwdBwd, inputs, 1, pool);
  for (const double value : {kNan, HUGE_VAL, -HUGE_VAL}) {
    Outputs outputs = right_outputs(p, inputs, pool);
    store_element(outputs.o, 5, static_cast<float>(value));
    const Verdict verdict = compare(p, Pass::kFwdBwd, reference, outputs, bounds_for(kFp32, 1));
    EXPECT_FALSE(verdict.passed());
    EXPECT_EQ(verdict.worst().tensor, "o");
    EXPECT_FALSE(verdict.worst().relative.has_value());
    EXPECT_FALSE(verdict.worst().absolute.has_value());
    EXPECT_THAT(verdict.reason(), HasSubstr("query 1, d 1] is"));
    EXPECT_THAT(verdict.reason(), HasSubstr("no error can be computed"));
    EXPECT_THAT(verdict.reason(), testing::Not(HasSubstr("relative error")));
  }
  EXPECT_TRUE(compare(p, Pass::kFwdBwd, reference, right_outputs(p, inputs, pool), bounds_for(kFp32, 1)).passed());
}

/// A causal problem that is sampled, with room for the statistics of a whole head or not.
class SampledKeys : public testing::Test {
 protected:
  Reference make(double head_budget) {
    return make_reference(p_, Pass::kBwd, inputs_, 1, pool_, {.whole = 1e5, .head = head_budget});
  }

  kernels::ThreadPool pool_{2};
  Problem p_ = problem_of(2, 600, 8, true);
  Inputs inputs_ = make_inputs(p_, Pass::kFwdBwd, 1, pool_);
};

TEST_F(SampledKeys, ComeFromTheWholeSequence) {
  const Reference reference = make(1e9);
  ASSERT_FALSE(reference.complete);
  EXPECT_EQ(reference.first_checked_key, 0);
  EXPECT_EQ(reference.keys.front(), 0);
  EXPECT_EQ(reference.keys.back(), 599);
  const auto early = std::count_if(reference.keys.begin(), reference.keys.end(), [](auto key) { return key < 300; });
  EXPECT_GE(early, 8);
}

TEST_F(SampledKeys, FindAnErrorInAnEarlyKey) {
  const Reference reference = make(1e9);
  Outputs outputs = right_outputs(p_, inputs_, pool_);
  EXPECT_TRUE(compare(p_, Pass::kBwd, reference, outputs, bounds_for(kFp32, 1)).passed());
  const std::int64_t row = reference.key_batch * 600 + 64;  // a tile edge, far from the last keys
  for (HostTensor* tensor : {&outputs.dk, &outputs.dv}) {
    const float right = load_element(tensor->view.data, Dtype::kFp32, row * 8);
    store_element(*tensor, row * 8, right + 0.5f);
    EXPECT_FALSE(compare(p_, Pass::kBwd, reference, outputs, bounds_for(kFp32, 1)).passed());
    store_element(*tensor, row * 8, right);
  }
}

TEST_F(SampledKeys, AreTheLastOnesAloneWhereAHeadIsTooLongAndTheVerdictSaysSo) {
  const Reference reference = make(1e6);
  EXPECT_GT(reference.first_checked_key, 0);
  EXPECT_GE(reference.keys.front(), reference.first_checked_key);
  const Outputs outputs = right_outputs(p_, inputs_, pool_);
  const Verdict verdict = compare(p_, Pass::kBwd, reference, outputs, bounds_for(kFp32, 1));
  EXPECT_TRUE(verdict.passed());
  EXPECT_THAT(verdict.caveat, HasSubstr("dk and dv were compared at keys from " +
                                        std::to_string(reference.first_checked_key) + " on alone"));
  EXPECT_EQ(compare(p_, Pass::kBwd, make(1e9), outputs, bounds_for(kFp32, 1)).caveat, "");
}

TEST(Reference, ALongProblemIsNotTakenForAnEmptyOne) {
  Problem p = problem_of(1, std::int64_t{1} << 32, 16, false);  // 2^64 scores, 0 by the arithmetic of 64 bits
  EXPECT_FALSE(kernels::is_checked_in_full(p, Pass::kFwd));
  p.seq_k = 0;
  EXPECT_TRUE(kernels::is_checked_in_full(p, Pass::kFwd));
}

/// A golden file of one query head and this metadata; every tensor is empty.
base::Result<Golden> golden_of(const std::string& metadata) {
  std::string header = R"({"__metadata__":{)" + metadata + "}";
  for (const char* name : {"q", "dout", "o", "dq"}) {
    header += std::string(",\"") + name + R"(":{"dtype":"F32","shape":[1,1,2,1],"data_offsets":[)";
    header += std::to_string(8 * (name[0] == 'q' ? 0 : name[0] == 'o' ? 1 : name[1] == 'o' ? 2 : 3)) + ",";
    header += std::to_string(8 * (name[0] == 'q' ? 1 : name[0] == 'o' ? 2 : name[1] == 'o' ? 3 : 4)) + "]}";
  }
  for (const char* name : {"k", "v", "dk", "dv"}) {
    header += std::string(",\"") + name + R"(":{"dtype":"F32","shape":[1,1,0,1],"data_offsets":[40,40]})";
  }
  header += R"(,"lse":{"dtype":"F32","shape":[1,1,2],"data_offsets":[32,40]}})";
  std::vector<unsigned char> bytes(8);
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize(bytes.size() + 40);
  const auto file = SafeTensors::parse(std::move(bytes), "some.safetensors");
  EXPECT_TRUE(file) << file.error().message;
  return file ? read_golden(*file) : tl::unexpected(file.error());
}

const std::string kEmptyKeys =
    R"("batch":"1","heads":"1","kv_heads":"1","seq_q":"2","seq_k":"0","head_dim":"1","causal":"0","window_left":"-1",)";

TEST(GoldenFiles, MayHaveNoKeys) {
  const auto golden = golden_of(kEmptyKeys + R"("scale":"1")");
  ASSERT_TRUE(golden) << golden.error().message;
  EXPECT_EQ(golden->problem.seq_k, 0);
}

TEST(GoldenFiles, NeedAMaskThatIsOne) {
  const std::string scale = R"("scale":"1")";
  const auto message = [&](std::string metadata, const std::string& from, const std::string& to) {
    metadata.replace(metadata.find(from), from.size(), to);
    const auto golden = golden_of(metadata + scale);
    EXPECT_FALSE(golden) << to;
    return golden ? std::string() : golden.error().message;
  };
  EXPECT_THAT(message(kEmptyKeys, R"("causal":"0")", R"("causal":"2")"), HasSubstr("causal is 2, which is not 0 or 1"));
  EXPECT_THAT(message(kEmptyKeys, R"("window_left":"-1")", R"("window_left":"-2")"), HasSubstr("window_left is -2"));
}

TEST(GoldenFiles, NeedAScaleThatFp32Holds) {
  const auto golden = golden_of(kEmptyKeys + R"("scale":"1e39")");
  ASSERT_FALSE(golden);
  EXPECT_EQ(golden.error().kind, base::ErrorKind::kUnreadable);
  EXPECT_THAT(golden.error().message, HasSubstr("scale is 1e+39, which fp32 cannot hold"));
}

}  // namespace
}  // namespace attnbench::measure
