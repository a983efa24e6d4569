// Owners of CUDA handles: destroyed where they go out of scope.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

namespace attnbench::kernels {

template <auto destroy>
struct CudaDestroy {
  template <typename Raw>
  void operator()(Raw raw) const {
    (void)destroy(raw);  // fails only after a sticky error, when nothing can be freed any more
  }
};

template <typename Raw, auto destroy>
using UniqueHandle = std::unique_ptr<std::remove_pointer_t<Raw>, CudaDestroy<destroy>>;

using CudaStream = UniqueHandle<cudaStream_t, &cudaStreamDestroy>;
using CudaEvent = UniqueHandle<cudaEvent_t, &cudaEventDestroy>;
using CudaGraph = UniqueHandle<cudaGraph_t, &cudaGraphDestroy>;
using CudaGraphExec = UniqueHandle<cudaGraphExec_t, &cudaGraphExecDestroy>;
using CudaMemory = UniqueHandle<void*, &cudaFree>;
using CudaHostMemory = UniqueHandle<void*, &cudaFreeHost>;

}  // namespace attnbench::kernels
