// Attention from cuBLAS products and own softmax kernels: what a library without a fused kernel offers.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <limits>
#include <map>
#include <memory>
#include <string>

#include "kernels/cuda/blas_rows.hpp"
#include "kernels/cuda/plugin.hpp"
#include "kernels/device/cuda_error.hpp"
#include "kernels/kernel.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

// What cuBLAS advises for Hopper; given to it, so that a launch allocates nothing and can be captured in a graph.
constexpr std::size_t kCublasBytes = std::size_t{32} << 20;
constexpr std::int64_t kMaxBatch = 32768;  // per call: a batch is a grid dimension inside the library, at most 65535

Result<void> check_blas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorKind::kOutOfMemory : ErrorKind::kFailed,
              std::string("blas: ") + what + ": " + cublasGetStatusString(status));
}

struct DestroyCublas {
  void operator()(cublasHandle_t handle) const { (void)cublasDestroy(handle); }
};
using CublasHandle = std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, DestroyCublas>;

/// One handle per GPU, made while that one is current, and kept until the process ends: making one takes longer than
/// most kernels here.
Result<cublasHandle_t> handle_for(int ordinal) {
  static auto* const handles = new std::map<int, CublasHandle>;  // never destroyed: the driver may be gone by then
  CublasHandle& handle = (*handles)[ordinal];
  if (!handle) {
    cublasHandle_t raw = nullptr;
    if (auto ok = check_blas(cublasCreate(&raw), "cannot open cuBLAS"); !ok) return tl::unexpected(ok.error());
    handle.reset(raw);
    // No TF32 for fp32, and sums of 16-bit products stay in fp32 to the end.
    const auto mode = static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (auto ok = check_blas(cublasSetMathMode(raw, mode), "math mode"); !ok) return tl::unexpected(ok.error());
  }
  return handle.get();
}

cudaDataType_t type_of(Dtype dtype) {
  return dtype == Dtype::kFp32 ? CUDA_R_32F : (dtype == Dtype::kBf16 ? CUDA_R_16BF : CUDA_R_16F);
}

std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

/// A row-major matrix per batch entry, as it is stored: `rows` x `columns`, used transposed or not.
struct Operand {
  const void* data;
  cudaDataType_t type;
  std::int64_t rows, columns;
  bool transposed;
};

class Blas : public PreparedKernel {
 public:
  Blas(const AttentionArgs& args, cublasHandle_t handle, cudaStream_t stream)
      : args_(args), p_(args.problem), handle_(handle), stream_(stream), type_(type_of(p_.dtype)) {
    rows_ = p_.kv_heads > 0 ? p_.heads / p_.kv_heads * p_.seq_q : 0;
    const auto scores = static_cast<std::size_t>(p_.batch * p_.heads * p_.seq_q * p_.seq_k);
    char* workspace = static_cast<char*>(args.workspace);
    weights_ = args.saved;
    matrix_ = reinterpret_cast<float*>(workspace + kCublasBytes);
    gradient_ = workspace + kCublasBytes + aligned(scores * sizeof(float));
    if (p_.dtype == Dtype::kFp32) gradient_ = matrix_;
    masked_ = p_.causal || p_.window_left >= 0;
  }

  std::string variant() const override { return "cublas+" + std::string(to_string(p_.dtype)); }

  Result<void> launch(Pass pass) override {
    // In this order: setting the stream takes the workspace away.
    if (auto ok = check_blas(cublasSetStream(handle_, stream_), "stream"); !ok) return ok;
    if (auto ok = check_blas(cublasSetWorkspace(handle_, args_.workspace, kCublasBytes), "workspace"); !ok) return ok;
    return pass == Pass::kFwd ? forward() : backward();
  }

 private:
  Operand rows_by_dim(const void* data, bool transposed) const { return {data, type_, rows_, p_.head_dim, transposed}; }
  Operand keys_by_dim(const void* data, bool transposed) const {
    return {data, type_, p_.seq_k, p_.head_dim, transposed};
  }
  Operand rows_by_keys(const void* data, bool transposed) const { return {data, type_, rows_, p_.seq_k, transposed}; }

  /// out = alpha a b for every (batch, kv head). The query heads of a group lie one after the other, so that they are
  /// simply more rows. cuBLAS counts columns first, hence b before a.
  Result<void> product(const Operand& a, const Operand& b, float alpha, void* out, cudaDataType_t out_type) {
    const std::int64_t m = a.transposed ? a.columns : a.rows;
    const std::int64_t k = a.transposed ? a.rows : a.columns;
    const std::int64_t n = b.transposed ? b.rows : b.columns;
    const std::int64_t batch = p_.batch * p_.kv_heads;
    const auto size_out = static_cast<std::int64_t>(out_type == CUDA_R_32F ? 4 : 2);
    if (m == 0 || n == 0 || batch == 0) return {};
    if (k == 0) {
      return check_cuda(cudaMemsetAsync(out, 0, static_cast<std::size_t>(batch * m * n * size_out), stream_), "blas");
    }
    const float zero = 0.0f;
    const auto size = static_cast<std::int64_t>(size_of(p_.dtype));
    for (std::int64_t first = 0; first < batch; first += kMaxBatch) {
      const auto count = static_cast<int>(std::min(kMaxBatch, batch - first));
      const char* pa = static_cast<const char*>(a.data) + first * m * k * size;
      const char* pb = static_cast<const char*>(b.data) + first * n * k * size;
      char* po = static_cast<char*>(out) + first * m * n * size_out;
      const cublasStatus_t status = cublasGemmStridedBatchedEx(
          handle_, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
          static_cast<int>(n), static_cast<int>(m), static_cast<int>(k), &alpha, pb, b.type,
          static_cast<int>(b.columns), n * k, pa, a.type, static_cast<int>(a.columns), m * k, &zero, po, out_type,
          static_cast<int>(n), m * n, count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
      if (auto ok = check_blas(status, "product"); !ok) return ok;
    }
    return {};
  }

  Result<void> repair(const BlasRepair* repairs, int count) {
    if (!masked_) return {};
    return check_cuda(launch_blas_repair(p_, repairs, count, stream_), "blas");
  }

  Result<void> forward() {
    float* scores = p_.dtype == Dtype::kFp32 ? static_cast<float*>(weights_) : matrix_;
    if (auto ok =
            product(rows_by_dim(args_.q.data, false), keys_by_dim(args_.k.data, true), p_.scale, scores, CUDA_R_32F);
        !ok)
      return ok;
    if (auto ok = check_cuda(launch_blas_softmax(p_, scores, weights_, args_.lse, stream_), "blas"); !ok) return ok;
    if (auto ok = product(rows_by_keys(weights_, false), keys_by_dim(args_.v.data, false), 1.0f, args_.o.data, type_);
        !ok)
      return ok;
    const BlasRepair o{weights_, args_.v.data, args_.o.data, false};
    return repair(&o, 1);
  }

  Result<void> backward() {
    if (auto ok =
            product(rows_by_keys(weights_, true), rows_by_dim(args_.dout.data, false), 1.0f, args_.dv.data, type_);
        !ok)
      return ok;
    if (auto ok =
            product(rows_by_dim(args_.dout.data, false), keys_by_dim(args_.v.data, true), 1.0f, matrix_, CUDA_R_32F);
        !ok)
      return ok;
    if (auto ok = check_cuda(launch_blas_softmax_gradient(p_, weights_, matrix_, gradient_, stream_), "blas"); !ok)
      return ok;
    if (auto ok = product(rows_by_keys(gradient_, false), keys_by_dim(args_.k.data, false), 1.0f, args_.dq.data, type_);
        !ok)
      return ok;
    if (auto ok = product(rows_by_keys(gradient_, true), rows_by_dim(args_.q.data, false), 1.0f, args_.dk.data, type_);
        !ok)
      return ok;
    const BlasRepair repairs[] = {{weights_, args_.dout.data, args_.dv.data, true},
                                  {gradient_, args_.k.data, args_.dq.data, false},
                                  {gradient_, args_.q.data, args_.dk.data, true}};
    return repair(repairs, 3);
  }

  AttentionArgs args_;
  Problem p_;
  cublasHandle_t handle_;
  cudaStream_t stream_;
  cudaDataType_t type_;
  std::int64_t rows_ = 0;  // of one (batch, kv head): the group's query heads one after the other
  void* weights_;
  float* matrix_;
  void* gradient_;
  bool masked_;
};

std::optional<std::string> supports(const Problem& p, Pass, const Target&) {
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();
  const std::int64_t group = p.kv_heads > 0 ? p.heads / p.kv_heads : 1;
  if (group * p.seq_q > kMax || p.seq_k > kMax)
    return "blas: cuBLAS counts rows in 32 bits; heads / kv_heads * seq_q and seq_k must stay below 2^31";
  return std::nullopt;
}

Footprint footprint(const Problem& p, Pass pass, const Target&) {
  const auto scores = static_cast<std::size_t>(p.batch * p.heads * p.seq_q * p.seq_k);
  const bool single = p.dtype == Dtype::kFp32;
  Footprint f;
  f.saved_bytes = scores * size_of(p.dtype);
  f.workspace_bytes = kCublasBytes;
  if (!single || pass != Pass::kFwd) f.workspace_bytes += aligned(scores * sizeof(float));
  if (!single && pass != Pass::kFwd) f.workspace_bytes += aligned(scores * size_of(p.dtype));
  return f;
}

Result<std::unique_ptr<PreparedKernel>> prepare_blas(const AttentionArgs& args, Device& device) {
  const bool backward = args.dq.data != nullptr || args.dk.data != nullptr || args.dv.data != nullptr;
  const struct {
    const char* name;
    const Tensor* tensor;
    bool used;
  } tensors[] = {{"q", &args.q, true},       {"k", &args.k, true},           {"v", &args.v, true},
                 {"o", &args.o, true},       {"dout", &args.dout, backward}, {"dq", &args.dq, backward},
                 {"dk", &args.dk, backward}, {"dv", &args.dv, backward}};
  for (const auto& t : tensors) {
    if (!t.used || t.tensor->size() == 0) continue;
    const auto dense = dense_strides(t.tensor->extent);
    for (std::size_t i = 0; i < 4; ++i) {
      if (t.tensor->extent[i] == 1 || t.tensor->stride[i] == dense[i]) continue;
      return fail(ErrorKind::kUnsupported,
                  std::string("blas needs dense [B, H, S, D] tensors; stride ") + std::to_string(i) + " of " + t.name +
                      " is " + std::to_string(t.tensor->stride[i]) + ", not " + std::to_string(dense[i]));
    }
  }
  const Result<cublasHandle_t> handle = handle_for(device.facts().ordinal);
  if (!handle) return tl::unexpected(handle.error());
  return std::make_unique<Blas>(args, *handle, static_cast<cudaStream_t>(device.stream()));
}

}  // namespace

std::string cublas_version() {
  int part[3] = {};
  const libraryPropertyType names[3] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
  for (int i = 0; i < 3; ++i) {
    if (cublasGetProperty(names[i], &part[i]) != CUBLAS_STATUS_SUCCESS) return {};
  }
  return std::to_string(part[0]) + "." + std::to_string(part[1]) + "." + std::to_string(part[2]);
}

/// Shapes  q, o, dout, dq [B, H, Sq, D]   k, v, dk, dv [B, Hkv, Sk, D]   lse [B, H, Sq], natural log
/// Needs   dense tensors; a group's query rows countable in 32 bits
/// Memory  P [B, H, Sq, Sk] in the problem's dtype kept for the backward; fp32 scores beside it for 16-bit problems;
///         dP (and for 16-bit problems dS) while the backward runs; 32 MiB for cuBLAS
/// Errors  cuBLAS statuses and launch errors
const KernelInfo& cuda_blas() {
  static const KernelInfo info = [] {
    KernelInfo blas;
    blas.name = "blas";
    blas.variant = "cublas";
    blas.summary = "two strided-batched cuBLAS products (four backward) around own softmax kernels; no TF32";
    blas.source = "cuBLAS, cublasGemmStridedBatchedEx";
    blas.device = DeviceKind::kCuda;
    blas.materialises = true;
    blas.supports = &supports;
    blas.footprint = &footprint;
    blas.tolerance = &default_tolerance;
    blas.prepare = &prepare_blas;
    return blas;
  }();
  return info;
}

}  // namespace attnbench::kernels
