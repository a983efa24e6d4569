// Times launches on a stream with CUDA events, directly or as replays of a CUDA graph.
#pragma once

#include <memory>

#include "kernels/device/cuda_handles.hpp"
#include "kernels/device/device.hpp"
#include "kernels/device/nvml.hpp"

namespace attnbench::kernels {

/// What the stopwatch borrows from its device; outlives it.
struct CudaStopwatchParts {
  int ordinal = 0;
  cudaStream_t stream = nullptr;
  void* flush = nullptr;  // written before each cold sample; null: hot
  std::size_t flush_bytes = 0;
  const NvmlDevice* nvml = nullptr;
};

/// Launches a few times first: to load what loads lazily, and to learn how long one takes.
/// Errors: those of the launch; kUsage for a timing that is not events, graph or auto; kUnsupported when a graph was
/// asked for and the launch cannot be captured.
base::Result<std::unique_ptr<Stopwatch>> make_cuda_stopwatch(Launch launch, const SampleSpec& spec,
                                                             const CudaStopwatchParts& parts);

/// High-water mark of the device's memory by a host thread that polls cudaMemGetInfo.
std::unique_ptr<MemoryProbe> make_cuda_memory_probe(int ordinal, const Device& device);

}  // namespace attnbench::kernels
