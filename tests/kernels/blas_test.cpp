// The blas kernel's own parts: which element type its products read, and the rows between them on every instruction
// set.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "bench/base/rng.hpp"
#include "hwy/targets.h"
#include "kernel_case.hpp"
#include "kernels/cpu/blas_product.hpp"
#include "kernels/cpu/softmax.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::kernels {

const KernelInfo& cpu_blas();

namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

/// What bind_products asks for, in order, from a library that answers a bf16 product with `bf16`.
struct Asked {
  explicit Asked(Dtype problem, const Result<void>& bf16)
      : result(bind_products(problem, [&](Dtype input) {
          inputs.push_back(input);
          return input == Dtype::kBf16 ? bf16 : Result<void>{};
        })) {}
  std::vector<Dtype> inputs;
  Result<Dtype> result;
};

TEST(BlasProducts, ReadBf16WhereTheLibraryHasThem) {
  const Asked asked(Dtype::kBf16, {});
  ASSERT_TRUE(asked.result);
  EXPECT_EQ(*asked.result, Dtype::kBf16);
  EXPECT_EQ(asked.inputs, std::vector<Dtype>{Dtype::kBf16});
}

TEST(BlasProducts, ReadFp32WhereTheLibraryDeclinesBf16) {
  const Asked asked(Dtype::kBf16, fail(ErrorKind::kUnsupported, "no such product"));
  ASSERT_TRUE(asked.result);
  EXPECT_EQ(*asked.result, Dtype::kFp32);
  EXPECT_EQ(asked.inputs, (std::vector<Dtype>{Dtype::kBf16, Dtype::kFp32}));
}

TEST(BlasProducts, AreNotMadeInFp32WhenTheLibraryFailsOrIsAbsent) {
  for (const ErrorKind kind : {ErrorKind::kFailed, ErrorKind::kAbsent}) {
    const Asked asked(Dtype::kBf16, fail(kind, "broken"));
    ASSERT_FALSE(asked.result);
    EXPECT_EQ(asked.result.error().kind, kind);
    EXPECT_EQ(asked.inputs, std::vector<Dtype>{Dtype::kBf16});
  }
}

TEST(BlasProducts, ReadFp32ForFp32AndFp16) {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kFp16}) {
    const Asked asked(dtype, {});
    ASSERT_TRUE(asked.result);
    EXPECT_EQ(*asked.result, Dtype::kFp32);
    EXPECT_EQ(asked.inputs, std::vector<Dtype>{Dtype::kFp32});
  }
}

/// Needs scratch of its own, and notes where it got it.
class NeedsScratch : public LibraryProduct {
 public:
  NeedsScratch(std::size_t bytes, std::vector<void*>& given) : bytes_(bytes), given_(given) {}
  std::size_t scratch_bytes() const override { return bytes_; }
  bool run(const void*, const void*, void*, int thread, void* scratch) override {
    std::memset(scratch, thread, bytes_);
    given_[static_cast<std::size_t>(thread)] = scratch;
    return true;
  }

 private:
  std::size_t bytes_;
  std::vector<void*>& given_;
};

TEST(BlasProducts, WorkInMemoryThatTheDeviceCounts) {
  constexpr std::size_t kWhole = 1000, kLast = 1300;  // the larger one, to whole 64 bytes, for each thread
  CpuDevice device(3);
  std::vector<void*> given(3);
  {
    auto product = BlockedProduct::make(200, 128, device, [&](std::int64_t rows) {
      return std::make_unique<NeedsScratch>(rows == 128 ? kWhole : kLast, given);
    });
    ASSERT_TRUE(product) << product.error().message;
    EXPECT_EQ(device.allocated_bytes(), 3 * 1344u);
    for (int thread = 0; thread < 3; ++thread) EXPECT_TRUE(product->run(72, nullptr, nullptr, nullptr, thread));
    for (std::size_t thread = 0; thread < 3; ++thread) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(given[thread]) % 64, 0u);
      EXPECT_EQ(std::vector<unsigned char>(kLast, static_cast<unsigned char>(thread)),
                std::vector<unsigned char>(static_cast<unsigned char*>(given[thread]),
                                           static_cast<unsigned char*>(given[thread]) + kLast));
    }
  }
  EXPECT_EQ(device.allocated_bytes(), 0u);
  EXPECT_EQ(device.peak_allocated_bytes(), 3 * 1344u);
}

/// oneDNN multiplies bf16 from AVX-512 (BW, DQ, VL) up, unless it is told to go no further than AVX2.
std::string expected_bf16_variant() {
  const char* limit = std::getenv("DNNL_MAX_CPU_ISA");
#if defined(__x86_64__)
  const bool wide =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return wide && (limit == nullptr || std::string(limit) != "AVX2") ? "onednn" : "onednn+fp32";
#else
  return {};
#endif
}

TEST(BlasVariant, SaysWhatTheProductsRead) {
  const auto variant = [](Dtype dtype) {
    const Problem p = make_problem(8, 8, 16, false, dtype);
    return run_kernel(cpu_blas(), p, random_inputs(p, 1)).variant;
  };
  EXPECT_EQ(variant(Dtype::kFp32), "onednn");
  EXPECT_EQ(variant(Dtype::kFp16), "onednn+fp32");
  const std::string expected = expected_bf16_variant();
  if (expected.empty()) GTEST_SKIP() << "what oneDNN multiplies on this architecture is not known here";
  EXPECT_EQ(variant(Dtype::kBf16), expected);
}

/// Runs `body` on every instruction set that was compiled in and that this machine has.
void on_every_target(const std::function<void()>& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

std::vector<float> normals(std::int64_t count, std::uint64_t stream, float factor) {
  const base::Rng rng(25, stream);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(factor * rng.normal(static_cast<std::uint64_t>(i)));
  return values;
}

TEST(BlasSoftmax, IsRightAtEveryLength) {
  on_every_target([] {
    for (std::int64_t count = 1; count <= 70; ++count) {
      const std::vector<float> scores = normals(count, 0, 10.0f);
      // One element before and after the row must stay as they are.
      std::vector<float> row{kNan};
      row.insert(row.end(), scores.begin(), scores.end());
      row.push_back(kNan);
      const float lse = softmax_row(row.data() + 1, count, -0.5f);
      double sum = 0;
      for (const float score : scores) sum += std::exp(-0.5 * static_cast<double>(score));
      EXPECT_NEAR(static_cast<double>(lse), std::log(sum), 2e-6) << count;
      for (std::size_t j = 0; j < scores.size(); ++j) {
        EXPECT_NEAR(static_cast<double>(row[j + 1]), std::exp(-0.5 * static_cast<double>(scores[j])) / sum, 1e-6);
      }
      EXPECT_TRUE(std::isnan(row.front()) && std::isnan(row.back())) << count;
    }
  });
}

TEST(BlasSoftmax, SaturatesAndKeepsNan) {
  on_every_target([] {
    for (const std::size_t count : {3u, 40u}) {
      std::vector<float> row(count, 1.0f);
      row[0] = row[count - 1] = kInf;
      EXPECT_EQ(softmax_row(row.data(), static_cast<std::int64_t>(count), 2.0f), std::numeric_limits<float>::max());
      EXPECT_EQ(row[0], 0.5f);
      EXPECT_EQ(row[1], 0.0f);
      EXPECT_EQ(row[count - 1], 0.5f);
      row.assign(count, -kInf);
      EXPECT_EQ(softmax_row(row.data(), static_cast<std::int64_t>(count), 2.0f), -std::numeric_limits<float>::max());
      EXPECT_FLOAT_EQ(row[1], 1.0f / static_cast<float>(count));
      row[1] = kNan;
      EXPECT_TRUE(std::isnan(softmax_row(row.data(), static_cast<std::int64_t>(count), 1.0f)));
      for (const float weight : row) EXPECT_TRUE(std::isnan(weight));
    }
  });
}

TEST(BlasSoftmax, BackwardIsRightAtEveryLength) {
  on_every_target([] {
    for (std::int64_t count = 1; count <= 70; ++count) {
      const std::vector<float> p = normals(count, 1, 1.0f), dp = normals(count, 2, 1.0f);
      std::vector<float> ds = dp;
      softmax_backward_row(p.data(), ds.data(), count, 0.25f);
      double delta = 0;
      for (std::size_t j = 0; j < p.size(); ++j) delta += static_cast<double>(p[j]) * static_cast<double>(dp[j]);
      for (std::size_t j = 0; j < p.size(); ++j) {
        const double want = static_cast<double>(p[j]) * (static_cast<double>(dp[j]) - delta) * 0.25;
        EXPECT_NEAR(static_cast<double>(ds[j]), want, 2e-5) << count;
      }
    }
  });
}

TEST(BlasRounding, ToBf16IsThatOfTheDtypeAlsoInPlace) {
  on_every_target([] {
    const base::Rng rng(26, 0);
    std::vector<float> values{0.0f, -0.0f, kInf, -kInf, std::numeric_limits<float>::max(), 1e-45f, 1.00390625f, kNan};
    for (std::uint64_t i = 0; i < 500; ++i) {
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(rng.bits(i))));  // NaN of every kind among them
    }
    for (const std::size_t count : {values.size(), std::size_t{8}, std::size_t{3}}) {
      std::vector<float> room(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
      narrow_row(room.data(), static_cast<std::int64_t>(count), reinterpret_cast<Bf16*>(room.data()));
      for (std::size_t i = 0; i < count; ++i) {
        const Bf16 got = reinterpret_cast<const Bf16*>(room.data())[i];
        if (std::isnan(values[i])) {
          EXPECT_TRUE(std::isnan(to_float(got))) << i;
        } else {
          EXPECT_EQ(got.bits, to_bf16(values[i]).bits) << values[i];
        }
      }
    }
  });
}

}  // namespace
}  // namespace attnbench::kernels
