// The operations of shard_ops.hpp on a GPU.
#include "kernels/cuda/plugin.hpp"
#include "kernels/cuda/shard_launch.hpp"
#include "kernels/device/cuda_error.hpp"
#include "kernels/device/cuda_handles.hpp"

namespace attnbench::kernels {
namespace {

using base::Result;

class CudaShardOps : public ShardOps {
 public:
  CudaShardOps(Device& device, Queues& queues, CudaMemory partial)
      : ordinal_(device.facts().ordinal), queues_(queues), partial_(std::move(partial)) {}

  Result<void> run(const Cast& call, Queue queue) override { return enqueue(call, queue, "cast"); }
  Result<void> run(const OrderedSum& call, Queue queue) override { return enqueue(call, queue, "sum of gradients"); }
  Result<void> run(const FillNan& call) override { return enqueue(call, Queue::kCompute, "fill"); }
  Result<void> run(const Judge& call) override { return enqueue(call, Queue::kCompute, "norm"); }
  Result<void> run(const Update& call) override { return enqueue(call, Queue::kCompute, "optimizer"); }
  Result<void> run(const WriteNumbers& call) override {
    (void)cudaSetDevice(ordinal_);
    return check_cuda(launch(call, static_cast<double*>(partial_.get()), stream(Queue::kCompute)), "norm");
  }

 private:
  cudaStream_t stream(Queue queue) const { return static_cast<cudaStream_t>(queues_.stream(queue)); }

  template <typename Call>
  Result<void> enqueue(const Call& call, Queue queue, const char* what) {
    (void)cudaSetDevice(ordinal_);
    return check_cuda(launch(call, stream(queue)), what);
  }

  int ordinal_;
  Queues& queues_;
  CudaMemory partial_;  // outside the count: 8 KiB
};

}  // namespace

Result<std::unique_ptr<ShardOps>> cuda_shard_ops(Device& device) {
  (void)cudaSetDevice(device.facts().ordinal);
  void* memory = nullptr;
  auto ok = check_cuda(cudaMalloc(&memory, kNormBlocks * sizeof(double)), "partial sums");
  if (!ok) return tl::unexpected(ok.error());
  return std::make_unique<CudaShardOps>(device, *device.queues(), CudaMemory(memory));
}

}  // namespace attnbench::kernels
