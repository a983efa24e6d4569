// The operations of layer_ops.hpp on a GPU: enqueued on the device's stream.
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <string>

#include "kernels/cuda/layer_launch.hpp"
#include "kernels/cuda/plugin.hpp"
#include "kernels/device/cuda_error.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

constexpr std::int64_t kMostShared = 220 * 1024;  // bytes of a Hopper block, with room for the rest

/// Host memory that the GPU writes to: one per GPU, kept until the process ends.
Result<IdFault*> fault_of(int ordinal) {
  static std::mutex mutex;
  static auto* const faults = new std::map<int, IdFault*>;  // never freed: the driver may be gone by then
  const std::scoped_lock lock(mutex);
  IdFault*& fault = (*faults)[ordinal];
  if (fault == nullptr) {
    void* memory = nullptr;
    (void)cudaSetDevice(ordinal);
    auto ok = check_cuda(cudaHostAlloc(&memory, sizeof(IdFault), cudaHostAllocPortable), "cannot lock host memory");
    if (!ok) return tl::unexpected(ok.error());
    fault = new (memory) IdFault;
  }
  return fault;
}

class CudaLayerOps : public LayerOps {
 public:
  CudaLayerOps(const Device& device, IdFault* fault)
      : ordinal_(device.facts().ordinal), stream_(static_cast<cudaStream_t>(device.stream())), fault_(fault) {}

  std::size_t rms_norm_scratch_bytes(std::int64_t rows, std::int64_t width) const override {
    return static_cast<std::size_t>(gain_parts(rows) * width) * sizeof(float);
  }
  std::size_t embedding_scratch_bytes(std::int64_t rows, std::int64_t vocab) const override {
    (void)cudaSetDevice(ordinal_);
    return embedding_sort_bytes(rows, vocab);
  }

  Result<void> run(const RmsNorm& call) override { return enqueue(call, "norm"); }
  Result<void> run(const RmsNormBackward& call) override {
    if (call.width * 4 * static_cast<std::int64_t>(sizeof(float)) > kMostShared) {
      return fail(ErrorKind::kUnsupported, "the norm's gradient keeps rows of at most " +
                                               std::to_string(kMostShared / 16) + " elements on a GPU, not " +
                                               std::to_string(call.width));
    }
    return enqueue(call, "norm's gradient");
  }
  Result<void> run(const Rotary& call) override { return enqueue(call, "rotary embedding"); }
  Result<void> run(const SwiGlu& call) override { return enqueue(call, "gate"); }
  Result<void> run(const SwiGluBackward& call) override { return enqueue(call, "gate's gradient"); }
  Result<void> run(const Relu& call) override { return enqueue(call, "ReLU"); }
  Result<void> run(const ReluBackward& call) override { return enqueue(call, "ReLU's gradient"); }
  Result<void> run(const EmbeddingBackward& call) override { return enqueue(call, "table's gradient"); }
  Result<void> run(const CrossEntropyBackward& call) override { return enqueue(call, "loss's gradient"); }

  Result<void> run(const Embedding& call) override {
    if (auto ok = earlier_fault(); !ok) return ok;
    (void)cudaSetDevice(ordinal_);
    return check_cuda(launch(call, fault_, stream_), "table");
  }
  Result<void> run(const CrossEntropy& call) override {
    if (auto ok = earlier_fault(); !ok) return ok;
    (void)cudaSetDevice(ordinal_);
    return check_cuda(launch(call, fault_, stream_), "loss");
  }

 private:
  template <typename Call>
  Result<void> enqueue(const Call& call, const char* what) {
    (void)cudaSetDevice(ordinal_);
    return check_cuda(launch(call, stream_), what);
  }

  /// What the GPU has found since the last call; said once.
  Result<void> earlier_fault() {
    volatile IdFault* const seen = fault_;
    if (seen->vocab == 0) return {};
    const std::string what = seen->target != 0 ? "target " : "token ";
    const std::string sentence = what + std::to_string(seen->id) + " at position " + std::to_string(seen->position) +
                                 " is outside the vocabulary of " + std::to_string(seen->vocab);
    seen->vocab = 0;
    return fail(ErrorKind::kFailed, sentence);
  }

  int ordinal_;
  cudaStream_t stream_;
  IdFault* fault_;
};

}  // namespace

Result<std::unique_ptr<LayerOps>> cuda_layer_ops(Device& device) {
  auto fault = fault_of(device.facts().ordinal);
  if (!fault) return tl::unexpected(fault.error());
  return std::make_unique<CudaLayerOps>(device, *fault);
}

}  // namespace attnbench::kernels
