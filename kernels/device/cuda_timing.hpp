// The two device-side helpers of the CUDA stopwatch.
#pragma once

#include <cuda_runtime_api.h>

namespace attnbench::kernels {

/// Host-mapped words between the host and the blocking kernel.
struct HostGate {
  unsigned released = 0;   // the host's latest release
  unsigned timed_out = 0;  // the last ticket whose kernel gave up waiting
};

/// Holds the stream until `gate->released` reaches `ticket`, so that what the host enqueues meanwhile starts without a
/// gap. Gives up after 0.5 s, and says so in `gate->timed_out`: a launch that waits for the device must not hang.
cudaError_t launch_gate(HostGate* gate, unsigned ticket, cudaStream_t stream);

}  // namespace attnbench::kernels
