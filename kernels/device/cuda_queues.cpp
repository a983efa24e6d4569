// Streams and events of a GPU as queues and marks.
#include "kernels/device/cuda_queues.hpp"

#include <algorithm>
#include <utility>

#include "kernels/device/cuda_error.hpp"

namespace attnbench::kernels {
namespace {

using base::Result;

cudaEvent_t event_of(Mark mark) { return reinterpret_cast<cudaEvent_t>(mark); }

class GraphReplay : public Replay {
 public:
  GraphReplay(int ordinal, CudaGraphExec graph, cudaStream_t stream)
      : ordinal_(ordinal), graph_(std::move(graph)), stream_(stream) {}

  Result<void> launch() override {
    (void)cudaSetDevice(ordinal_);
    return check_cuda(cudaGraphLaunch(graph_.get(), stream_), "replay of a step");
  }

 private:
  int ordinal_;
  CudaGraphExec graph_;
  cudaStream_t stream_;
};

}  // namespace

Result<std::unique_ptr<CudaQueues>> CudaQueues::make(int ordinal, cudaStream_t compute) {
  (void)cudaSetDevice(ordinal);
  int least = 0, most = 0;
  (void)cudaDeviceGetStreamPriorityRange(&least, &most);
  std::array<CudaStream, 2> made;
  for (CudaStream& stream : made) {
    cudaStream_t raw = nullptr;
    // What travels goes first: it is short, and compute waits for it.
    auto ok = check_cuda(cudaStreamCreateWithPriority(&raw, cudaStreamNonBlocking, most), "cannot make a stream");
    if (!ok) return tl::unexpected(ok.error());
    stream.reset(raw);
  }
  std::unique_ptr<CudaQueues> queues(new CudaQueues(ordinal, compute, std::move(made[0]), std::move(made[1])));
  auto joint = queues->make_marks(1, MarkKind::kOrder);
  if (!joint) return tl::unexpected(joint.error());
  queues->joint_ = joint->front();
  return queues;
}

CudaQueues::CudaQueues(int ordinal, cudaStream_t compute, CudaStream gather, CudaStream reduce)
    : ordinal_(ordinal),
      gather_(std::move(gather)),
      reduce_(std::move(reduce)),
      streams_{compute, gather_.get(), reduce_.get()} {}

Result<std::vector<Mark>> CudaQueues::make_marks(std::size_t count, MarkKind kind) {
  (void)cudaSetDevice(ordinal_);
  const std::scoped_lock lock(mutex_);
  std::vector<Mark> marks;
  for (std::size_t i = 0; i < count; ++i) {
    cudaEvent_t raw = nullptr;
    const unsigned flags = kind == MarkKind::kTime ? cudaEventDefault : cudaEventDisableTiming;
    auto ok = check_cuda(cudaEventCreateWithFlags(&raw, flags), "cannot make an event");
    if (!ok) return tl::unexpected(ok.error());
    events_.emplace_back(raw);
    marks.push_back(reinterpret_cast<Mark>(raw));
  }
  if (kind == MarkKind::kTime) {
    timed_.insert(timed_.end(), marks.begin(), marks.end());
    std::sort(timed_.begin(), timed_.end());
  }
  return marks;
}

Result<void*> CudaQueues::make_staging(std::size_t bytes) {
  (void)cudaSetDevice(ordinal_);
  const std::scoped_lock lock(mutex_);
  void* memory = nullptr;
  if (auto ok = check_cuda(cudaMallocHost(&memory, bytes), "cannot lock host memory"); !ok)
    return tl::unexpected(ok.error());
  staging_.emplace_back(memory);
  return memory;
}

Result<void> CudaQueues::record(Mark mark, Queue queue) {
  (void)cudaSetDevice(ordinal_);
  // A mark of the capture alone has no time: a timed one is a node of its own, recorded at every replay.
  const bool outside = capturing_ && std::binary_search(timed_.begin(), timed_.end(), mark);
  const unsigned flags = outside ? cudaEventRecordExternal : cudaEventRecordDefault;
  return check_cuda(cudaEventRecordWithFlags(event_of(mark), raw(queue), flags), "event");
}

Result<void> CudaQueues::wait(Queue queue, Mark mark) {
  (void)cudaSetDevice(ordinal_);
  return check_cuda(cudaStreamWaitEvent(raw(queue), event_of(mark), 0), "wait for an event");
}

Result<bool> CudaQueues::reached(Mark mark) {
  (void)cudaSetDevice(ordinal_);
  const cudaError_t code = cudaEventQuery(event_of(mark));
  if (code == cudaErrorNotReady) return false;
  if (auto ok = check_cuda(code, "the GPU failed while running"); !ok) return tl::unexpected(ok.error());
  return true;
}

Result<double> CudaQueues::seconds_between(Mark from, Mark to) {
  (void)cudaSetDevice(ordinal_);
  float ms = 0;
  auto ok = check_cuda(cudaEventElapsedTime(&ms, event_of(from), event_of(to)), "time between events");
  if (!ok) return tl::unexpected(ok.error());
  return static_cast<double>(ms) * 1e-3;
}

Result<void> CudaQueues::copy(void* target, const void* source, std::size_t bytes, Queue queue) {
  if (bytes == 0) return {};
  (void)cudaSetDevice(ordinal_);
  return check_cuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, raw(queue)), "copy");
}

Result<void> CudaQueues::fill(void* target, unsigned char value, std::size_t bytes, Queue queue) {
  if (bytes == 0) return {};
  (void)cudaSetDevice(ordinal_);
  return check_cuda(cudaMemsetAsync(target, value, bytes, raw(queue)), "fill");
}

Result<void> CudaQueues::join(Queue later, Queue earlier) {
  auto ok = record(joint_, earlier);
  return ok ? wait(later, joint_) : ok;
}

Result<void> CudaQueues::begin_capture() {
  (void)cudaSetDevice(ordinal_);
  auto ok = check_cuda(cudaStreamBeginCapture(raw(Queue::kCompute), cudaStreamCaptureModeThreadLocal), "capture");
  if (!ok) return ok;
  capturing_ = true;
  for (const Queue queue : {Queue::kGather, Queue::kReduce}) {
    if (ok) ok = join(queue, Queue::kCompute);
  }
  return ok;
}

Result<std::unique_ptr<Replay>> CudaQueues::end_capture() {
  (void)cudaSetDevice(ordinal_);
  Result<void> ok;
  for (const Queue queue : {Queue::kGather, Queue::kReduce}) {
    if (ok) ok = join(Queue::kCompute, queue);
  }
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(raw(Queue::kCompute), &graph);
  const CudaGraph owned(graph);
  if (ok) ok = check_cuda(ended, "capture of a step");
  if (!ok) return tl::unexpected(ok.error());
  cudaGraphExec_t exec = nullptr;
  ok = check_cuda(cudaGraphInstantiate(&exec, graph, 0), "graph of a step");
  if (!ok) return tl::unexpected(ok.error());
  return std::make_unique<GraphReplay>(ordinal_, CudaGraphExec(exec), raw(Queue::kCompute));
}

}  // namespace attnbench::kernels
