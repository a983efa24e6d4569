// The products of a model's layers from cuBLASLt, one algorithm chosen per product when it is prepared.
#include "kernels/gemm.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "kernels/cuda/plugin.hpp"
#include "kernels/device/cuda_handles.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

// What cuBLAS advises for Hopper.
constexpr std::size_t kWorkspace = std::size_t{32} << 20;

Result<void> check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorKind::kOutOfMemory : ErrorKind::kFailed,
              std::string("cuBLASLt: ") + what + ": " + cublasGetStatusString(status));
}

using LtHandle = UniqueHandle<cublasLtHandle_t, &cublasLtDestroy>;
using LtDesc = UniqueHandle<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
using LtLayout = UniqueHandle<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
using LtPreference = UniqueHandle<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;

/// One handle per GPU, kept until the process ends; the library lets threads share it.
Result<cublasLtHandle_t> handle_for(int ordinal) {
  static std::mutex mutex;
  static auto* const handles = new std::map<int, LtHandle>;  // never destroyed: the driver may be gone by then
  const std::scoped_lock lock(mutex);
  LtHandle& handle = (*handles)[ordinal];
  if (!handle) {
    cublasLtHandle_t raw = nullptr;
    (void)cudaSetDevice(ordinal);
    if (auto ok = check(cublasLtCreate(&raw), "cannot be opened"); !ok) return tl::unexpected(ok.error());
    handle.reset(raw);
  }
  return handle.get();
}

cudaDataType_t type_of(Dtype dtype) {
  return dtype == Dtype::kFp32 ? CUDA_R_32F : (dtype == Dtype::kBf16 ? CUDA_R_16BF : CUDA_R_16F);
}

/// A matrix as the library takes it: it counts columns first, so a row-major matrix is the transposed one to it.
struct Operand {
  LtLayout layout;
  cublasOperation_t operation = CUBLAS_OP_N;
};

/// `m` transposed, as memory says it lies.
Result<Operand> transposed_operand(const GemmMatrix& m) {
  const bool plain = m.column == 1;  // rows are contiguous: to the library, columns of the transposed matrix
  const std::int64_t rows = plain ? m.columns : m.rows, columns = plain ? m.rows : m.columns;
  const std::int64_t lead = plain ? m.row : m.column;
  cublasLtMatrixLayout_t raw = nullptr;
  auto ok = check(cublasLtMatrixLayoutCreate(&raw, type_of(m.dtype), static_cast<std::uint64_t>(rows),
                                             static_cast<std::uint64_t>(columns), std::max(lead, rows)),
                  "layout");
  if (!ok) return tl::unexpected(ok.error());
  return Operand{LtLayout(raw), plain ? CUBLAS_OP_N : CUBLAS_OP_T};
}

template <typename Value>
Result<void> set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, const Value& value) {
  return check(cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof value), "attribute");
}

class Product : public PreparedGemm {
 public:
  Product(const GemmSpec& spec, void* workspace, Device& device)
      : spec_(spec),
        workspace_(workspace),
        ordinal_(device.facts().ordinal),
        stream_(static_cast<cudaStream_t>(device.stream())) {}

  /// c^T = b^T a^T: b comes first.
  Result<void> prepare() {
    auto handle = handle_for(ordinal_);
    if (!handle) return tl::unexpected(handle.error());
    handle_ = *handle;
    auto first = transposed_operand(spec_.b), second = transposed_operand(spec_.a), out = transposed_operand(spec_.c);
    for (const auto* each : {&first, &second, &out}) {
      if (!*each) return tl::unexpected(each->error());
    }
    first_ = std::move(*first);
    second_ = std::move(*second);
    out_ = std::move(*out);
    cublasLtMatmulDesc_t raw = nullptr;
    // fp32 products are fp32: no TF32. Sums are fp32 whatever goes in.
    if (auto ok = check(cublasLtMatmulDescCreate(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description"); !ok) return ok;
    desc_.reset(raw);
    auto ok = set(raw, CUBLASLT_MATMUL_DESC_TRANSA, first_.operation);
    if (ok) ok = set(raw, CUBLASLT_MATMUL_DESC_TRANSB, second_.operation);
    return ok ? choose() : ok;
  }

  Result<void> run(const void* a, const void* b, const void* addend, void* c) override {
    if (spec_.c.rows == 0 || spec_.c.columns == 0) return {};
    (void)cudaSetDevice(ordinal_);
    const float one = 1.0f, beta = addend == nullptr ? 0.0f : 1.0f;
    const void* const more = addend == nullptr ? c : addend;
    return check(
        cublasLtMatmul(handle_, desc_.get(), &one, b, first_.layout.get(), a, second_.layout.get(), &beta, more,
                       out_.layout.get(), c, out_.layout.get(), &algorithm_, workspace_, kWorkspace, stream_),
        "product");
  }

 private:
  /// The library's first choice among algorithms that give the same bits in every run.
  Result<void> choose() {
    cublasLtMatmulPreference_t raw = nullptr;
    if (auto ok = check(cublasLtMatmulPreferenceCreate(&raw), "preference"); !ok) return ok;
    const LtPreference preference(raw);
    const std::size_t bytes = kWorkspace;
    // A split of k adds its parts in fp32 in the workspace, never in place by whoever comes first.
    const std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    auto ok =
        check(cublasLtMatmulPreferenceSetAttribute(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
              "workspace");
    if (ok) {
      ok = check(cublasLtMatmulPreferenceSetAttribute(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                      sizeof schemes),
                 "reduction");
    }
    if (!ok) return ok;
    for (const auto& [attribute, alignment] : alignments()) {
      ok = check(cublasLtMatmulPreferenceSetAttribute(raw, attribute, &alignment, sizeof alignment), "alignment");
      if (!ok) return ok;
    }
    int found = 0;
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, desc_.get(), first_.layout.get(), second_.layout.get(),
                                       out_.layout.get(), out_.layout.get(), raw, 1, &result, &found);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
      return fail(ErrorKind::kUnsupported, "cuBLASLt has no product of " + std::to_string(spec_.a.rows) + " x " +
                                               std::to_string(spec_.a.columns) + " and " +
                                               std::to_string(spec_.b.rows) + " x " + std::to_string(spec_.b.columns) +
                                               " (" + cublasGetStatusString(status) + ")");
    }
    algorithm_ = result.algo;
    return {};
  }

  /// Parts of wider rows start wherever their stride puts them: no more is promised than their first column keeps.
  std::array<std::pair<cublasLtMatmulPreferenceAttributes_t, std::uint32_t>, 4> alignments() const {
    const auto of = [](const GemmMatrix& m) {
      const std::uint64_t size = size_of(m.dtype);
      const std::uint64_t line = static_cast<std::uint64_t>(m.column == 1 ? m.row : m.column) * size;
      const std::uint64_t width = static_cast<std::uint64_t>(m.column == 1 ? m.columns : m.rows) * size;
      std::uint32_t bytes = 16;
      while (line % bytes != 0 || width % bytes != 0) bytes /= 2;
      return bytes;
    };
    return {{{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of(spec_.b)},
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of(spec_.a)},
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of(spec_.c)},
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of(spec_.c)}}};
  }

  GemmSpec spec_;
  void* workspace_;
  int ordinal_;
  cudaStream_t stream_;
  cublasLtHandle_t handle_ = nullptr;
  LtDesc desc_;
  Operand first_, second_, out_;
  cublasLtMatmulAlgo_t algorithm_{};
};

Result<std::size_t> workspace_bytes(const GemmSpec&, Device&) { return kWorkspace; }

Result<std::unique_ptr<PreparedGemm>> prepare_product(const GemmSpec& spec, void* workspace, Device& device) {
  auto product = std::make_unique<Product>(spec, workspace, device);
  if (auto ok = product->prepare(); !ok) return tl::unexpected(ok.error());
  return product;
}

}  // namespace

const GemmLibrary& cuda_gemm() {
  static const GemmLibrary library{"cublaslt", &workspace_bytes, &prepare_product};
  return library;
}

}  // namespace attnbench::kernels
