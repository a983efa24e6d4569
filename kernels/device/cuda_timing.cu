// The device-side helper of the CUDA stopwatch: a kernel that waits for the host.
#include "kernels/device/cuda_timing.hpp"

namespace attnbench::kernels {
namespace {

constexpr unsigned long long kTimeoutNs = 500'000'000;

__device__ unsigned long long global_time_ns() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void wait_for_host(volatile HostGate* gate, unsigned ticket) {
  const unsigned long long start = global_time_ns();
  // The difference as a signed number, so that the counter may wrap.
  while (static_cast<int>(gate->released - ticket) < 0) {
    if (global_time_ns() - start > kTimeoutNs) {
      gate->timed_out = ticket;
      __threadfence_system();
      return;
    }
    __nanosleep(200);
  }
}

}  // namespace

cudaError_t launch_gate(HostGate* gate, unsigned ticket, cudaStream_t stream) {
  wait_for_host<<<1, 1, 0, stream>>>(gate, ticket);
  return cudaGetLastError();
}

}  // namespace attnbench::kernels
