// The GPU's layer operations and products against the processor's, on the same values: whole and odd widths, every
// dtype. The processor's are held to double precision by tests of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "bench/base/rng.hpp"
#include "kernels/catalog.hpp"
#include "kernels/device/cpu_device.hpp"
#include "tests/gpu/gpu_case.hpp"

namespace attnbench::kernels {
namespace {

void must(const base::Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

std::vector<unsigned char> encode(const std::vector<float>& values, Dtype dtype) {
  std::vector<unsigned char> bytes(values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == Dtype::kFp32) {
      std::memcpy(&bytes[4 * i], &values[i], 4);
    } else {
      const std::uint16_t bits = dtype == Dtype::kBf16 ? to_bf16(values[i]).bits : to_fp16(values[i]).bits;
      std::memcpy(&bytes[2 * i], &bits, 2);
    }
  }
  return bytes;
}

std::vector<float> decode(const std::vector<unsigned char>& bytes, Dtype dtype) {
  std::vector<float> values(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == Dtype::kFp32) std::memcpy(&values[i], &bytes[4 * i], 4);
    std::uint16_t bits = 0;
    if (dtype != Dtype::kFp32) std::memcpy(&bits, &bytes[2 * i], 2);
    if (dtype == Dtype::kBf16) values[i] = to_float(Bf16{bits});
    if (dtype == Dtype::kFp16) values[i] = to_float(Fp16{bits});
  }
  return values;
}

/// One side: a device, its operations, and arrays on it, in the order in which they were made.
class Side {
 public:
  explicit Side(Device& device, const Backend& backend)
      : device_(device), ops_(std::move(*backend.layer_ops(device))), gemm_(backend.gemm) {}

  LayerOps& ops() { return *ops_; }
  const GemmLibrary& gemm() const { return *gemm_; }
  Device& device() { return device_; }

  template <typename T = void>
  T* random(std::size_t count, std::uint64_t stream, Dtype dtype) {
    const base::Rng rng(5, stream);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = rng.normal(i);
    return static_cast<T*>(place(encode(values, dtype), dtype));
  }
  std::int32_t* ids(std::size_t count, std::int64_t vocab) {
    const base::Rng rng(6, 1);
    std::vector<std::int32_t> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<std::int32_t>(rng.bits(i) % static_cast<std::uint64_t>(vocab));
    }
    std::vector<unsigned char> bytes(count * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return static_cast<std::int32_t*>(place(bytes, Dtype::kFp32));
  }
  void* scratch(std::size_t bytes) {
    hidden_.push_back(*device_.allocate(bytes + 256));
    return hidden_.back().data();
  }
  /// Array `index` as it is now.
  std::vector<float> values(std::size_t index) {
    std::vector<unsigned char> bytes(arrays_[index].bytes());
    must(device_.download(bytes.data(), arrays_[index].data(), bytes.size()));
    return decode(bytes, dtypes_[index]);
  }
  std::size_t count() const { return arrays_.size(); }

 private:
  void* place(const std::vector<unsigned char>& bytes, Dtype dtype) {
    arrays_.push_back(*device_.allocate(bytes.size()));
    dtypes_.push_back(dtype);
    must(device_.upload(arrays_.back().data(), bytes.data(), bytes.size()));
    return arrays_.back().data();
  }

  Device& device_;
  std::unique_ptr<LayerOps> ops_;
  const GemmLibrary* gemm_;
  std::vector<Buffer> arrays_, hidden_;
  std::vector<Dtype> dtypes_;
};

/// Both sides do the same; then every array is equal to a rounding of its dtype, twice on the GPU to the bit.
void expect_same(Dtype dtype, const std::function<void(Side&)>& body) {
  CpuDevice processor(1);
  Side expected(processor, cpu_backend()), got(*gpu(), **cuda_backend()), again(*gpu(), **cuda_backend());
  for (Side* side : {&expected, &got, &again}) {
    body(*side);
    must(side->device().synchronize());
  }
  const double unit = dtype == Dtype::kFp32 ? 3e-6 : dtype == Dtype::kBf16 ? 0x1p-7 : 0x1p-10;
  for (std::size_t array = 0; array < expected.count(); ++array) {
    const std::vector<float> want = expected.values(array), have = got.values(array), repeat = again.values(array);
    double most = 1e-3;
    for (const float value : want) most = std::max(most, std::fabs(double{value}));
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_LE(std::fabs(double{want[i]} - double{have[i]}), unit * most) << "array " << array << ", element " << i;
      ASSERT_EQ(std::memcmp(&have[i], &repeat[i], 4), 0) << "array " << array << ", element " << i << " differs";
    }
  }
}

class GpuLayerOps : public ::testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override {
    if (gpu() == nullptr) GTEST_SKIP() << why_no_gpu();
  }
};

TEST_P(GpuLayerOps, NormsAndTheirGradients) {
  for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{1, 8}, {37, 96}, {4100, 768}, {19, 77}}) {
    for (const bool accumulate : {false, true}) {
      const auto elements = static_cast<std::size_t>(rows * width);
      expect_same(GetParam(), [&, rows = rows, width = width](Side& s) {
        void* const x = s.random(elements, 1, GetParam());
        void* const gain = s.random(static_cast<std::size_t>(width), 2, GetParam());
        void* const y = s.random(elements, 3, GetParam());
        auto* const inverse = s.random<float>(static_cast<std::size_t>(rows), 4, Dtype::kFp32);
        void* const dy = s.random(elements, 5, GetParam());
        void* const dx = s.random(elements, 6, GetParam());
        void* const dgain = s.random(static_cast<std::size_t>(width), 7, Dtype::kFp32);
        must(s.ops().run(RmsNorm{GetParam(), rows, width, 1e-5f, x, gain, y, inverse}));
        must(s.ops().run(RmsNormBackward{GetParam(), rows, width, x, gain, inverse, dy, accumulate ? dx : nullptr, dx,
                                         GradOut{dgain, Dtype::kFp32, accumulate},
                                         s.scratch(s.ops().rms_norm_scratch_bytes(rows, width))}));
      });
    }
  }
}

TEST_P(GpuLayerOps, RotaryThereAndBack) {
  for (const std::int64_t head_dim : {2, 6, 32, 64, 80}) {
    for (const bool inverse : {false, true}) {
      expect_same(GetParam(), [&](Side& s) {
        const std::int64_t stride = 3 * 4 * head_dim + (head_dim == 6 ? 2 : 0);
        void* const x = s.random(static_cast<std::size_t>(2 * 65 * stride), 1, GetParam());
        must(s.ops().run(Rotary{GetParam(), 2, 65, 4, head_dim, stride, 10000.0, inverse, x}));
      });
    }
  }
}

TEST_P(GpuLayerOps, GatesAndReluAndTheirGradients) {
  for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{3, 64}, {129, 3072}, {5, 13}}) {
    const auto elements = static_cast<std::size_t>(rows * width);
    expect_same(GetParam(), [&, rows = rows, width = width](Side& s) {
      void* const gate_up = s.random(2 * elements, 1, GetParam());
      void* const act = s.random(elements, 2, GetParam());
      void* const dact = s.random(elements, 3, GetParam());
      void* const y = s.random(elements, 4, GetParam());
      void* const dx = s.random(elements, 5, GetParam());
      must(s.ops().run(SwiGlu{GetParam(), rows, width, gate_up, act}));
      must(s.ops().run(SwiGluBackward{GetParam(), rows, width, gate_up, dact}));
      must(s.ops().run(Relu{GetParam(), rows * width, act, y}));
      must(s.ops().run(ReluBackward{GetParam(), rows * width, act, dact, dx}));
    });
  }
}

TEST_P(GpuLayerOps, TablesAndTheirGradients) {
  for (const auto& [vocab, width] : {std::pair<std::int64_t, std::int64_t>{7, 64}, {1000, 96}, {11, 9}}) {
    for (const Dtype out : {Dtype::kFp32, GetParam()}) {
      for (const bool accumulate : {false, true}) {
        expect_same(GetParam(), [&, vocab = vocab, width = width](Side& s) {
          constexpr std::int64_t kRows = 301;
          const std::int32_t* const ids = s.ids(kRows, vocab);
          void* const table = s.random(static_cast<std::size_t>(vocab * width), 1, GetParam());
          void* const rows = s.random(static_cast<std::size_t>(kRows * width), 2, GetParam());
          void* const dout = s.random(static_cast<std::size_t>(kRows * width), 3, GetParam());
          void* const dtable = s.random(static_cast<std::size_t>(vocab * width), 4, out);
          must(s.ops().run(Embedding{GetParam(), kRows, vocab, width, ids, table, rows}));
          must(s.ops().run(EmbeddingBackward{GetParam(), kRows, vocab, width, ids, dout,
                                             GradOut{dtable, out, accumulate},
                                             s.scratch(s.ops().embedding_scratch_bytes(kRows, vocab))}));
        });
      }
    }
  }
}

TEST_P(GpuLayerOps, LossAndItsGradient) {
  for (const auto& [rows, vocab] : {std::pair<std::int64_t, std::int64_t>{1, 8}, {70, 10000}, {1500, 37}}) {
    expect_same(GetParam(), [&, rows = rows, vocab = vocab](Side& s) {
      const std::int32_t* const targets = s.ids(static_cast<std::size_t>(rows), vocab);
      void* const logits = s.random(static_cast<std::size_t>(rows * vocab), 1, GetParam());
      auto* const lse = s.random<float>(static_cast<std::size_t>(rows), 2, Dtype::kFp32);
      auto* const loss = s.random<float>(1, 3, Dtype::kFp32);
      must(s.ops().run(CrossEntropy{GetParam(), rows, vocab, logits, targets, lse, loss}));
      must(s.ops().run(CrossEntropyBackward{GetParam(), rows, vocab, logits, targets, lse, 512.0f}));
    });
  }
}

TEST_P(GpuLayerOps, ProductsOfEveryLayout) {
  for (const bool flip_a : {false, true}) {
    for (const bool flip_b : {false, true}) {
      for (const Dtype out : {Dtype::kFp32, GetParam()}) {
        for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{64, 48, 96}, {256, 1000, 72}, {5, 3, 7}}) {
          expect_same(GetParam(), [&, m = m, n = n, k = k](Side& s) {
            const GemmMatrix a =
                flip_a ? transpose(row_major(k, m, m + 8, GetParam())) : row_major(m, k, k + 8, GetParam());
            const GemmMatrix b = flip_b ? transpose(row_major(n, k, k, GetParam())) : row_major(k, n, n, GetParam());
            const GemmSpec spec{a, b, row_major(m, n, n + 8, out)};
            void* const left = s.random(static_cast<std::size_t>((m + 8) * (k + 8)), 1, GetParam());
            void* const right = s.random(static_cast<std::size_t>(k * n), 2, GetParam());
            void* const addend = s.random(static_cast<std::size_t>(m * (n + 8)), 3, out);
            void* const c = s.random(static_cast<std::size_t>(m * (n + 8)), 4, out);
            void* const sum = s.random(static_cast<std::size_t>(m * (n + 8)), 5, out);
            auto product = s.gemm().prepare(spec, s.scratch(*s.gemm().workspace_bytes(spec, s.device())), s.device());
            if (!product) throw std::runtime_error(product.error().message);
            must((*product)->run(left, right, nullptr, c));
            must((*product)->run(left, right, addend, sum));
            must((*product)->run(left, right, sum, sum));
          });
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuLayerOps, ::testing::Values(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16),
                         [](const auto& param) { return std::string(to_string(param.param)); });

TEST(GpuLayerFaults, AnIdOutsideTheVocabularyIsNotReadAndIsNamedByTheNextCall) {
  if (gpu() == nullptr) GTEST_SKIP() << why_no_gpu();
  Side s(*gpu(), **cuda_backend());
  const std::int32_t ids[4] = {1, 2, 99, 0};
  std::int32_t* const place = s.ids(4, 4);
  must(gpu()->upload(place, ids, sizeof ids));
  void* const table = s.random(4 * 8, 1, Dtype::kFp32);
  void* const out = s.random(4 * 8, 2, Dtype::kFp32);
  const Embedding call{Dtype::kFp32, 4, 4, 8, place, table, out};
  must(s.ops().run(call));
  must(gpu()->synchronize());
  EXPECT_TRUE(std::isnan(s.values(2)[2 * 8]));
  EXPECT_FALSE(std::isnan(s.values(2)[3 * 8]));
  const auto next = s.ops().run(call);
  ASSERT_FALSE(next);
  EXPECT_NE(next.error().message.find("token 99 at position 2 is outside the vocabulary of 4"), std::string::npos);
}

}  // namespace
}  // namespace attnbench::kernels
