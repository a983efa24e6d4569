// Streams and events of a GPU as queues and marks.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "kernels/device/cuda_handles.hpp"
#include "kernels/device/queues.hpp"

namespace attnbench::kernels {

class CudaQueues : public Queues {
 public:
  /// Errors  kFailed: no stream can be made
  static base::Result<std::unique_ptr<CudaQueues>> make(int ordinal, cudaStream_t compute);

  void* stream(Queue queue) const override { return streams_[static_cast<std::size_t>(queue)]; }
  base::Result<std::vector<Mark>> make_marks(std::size_t count, MarkKind kind) override;
  base::Result<void*> make_staging(std::size_t bytes) override;
  base::Result<void> record(Mark mark, Queue queue) override;
  base::Result<void> wait(Queue queue, Mark mark) override;
  base::Result<bool> reached(Mark mark) override;
  base::Result<double> seconds_between(Mark from, Mark to) override;
  base::Result<void> copy(void* target, const void* source, std::size_t bytes, Queue queue) override;
  base::Result<void> fill(void* target, unsigned char value, std::size_t bytes, Queue queue) override;
  base::Result<void> begin_capture() override;
  base::Result<std::unique_ptr<Replay>> end_capture() override;

 private:
  CudaQueues(int ordinal, cudaStream_t compute, CudaStream gather, CudaStream reduce);
  cudaStream_t raw(Queue queue) const { return streams_[static_cast<std::size_t>(queue)]; }
  base::Result<void> join(Queue later, Queue earlier);

  int ordinal_;
  CudaStream gather_, reduce_;
  std::array<cudaStream_t, kQueues> streams_;
  std::mutex mutex_;  // of the two lists
  std::vector<CudaEvent> events_;
  std::vector<CudaHostMemory> staging_;
  std::vector<Mark> timed_;  // sorted
  Mark joint_ = nullptr;     // orders queues at the ends of a capture
  bool capturing_ = false;
};

}  // namespace attnbench::kernels
