// A link that is slower than the one at hand, so that overlap can be seen on few cores.
#pragma once

#include <memory>

#include "fsdp/transport.hpp"

namespace attnbench::fsdp {

/// One link per channel and rank. A collective over S bytes on N ranks takes latency (N - 1) + S (N - 1) / N /
/// bandwidth from the moment that all ranks have joined, an all-reduce twice that; longer if the real transport takes
/// longer. The channel's thread sleeps meanwhile, so that the processor is free for the compute.
struct LinkModel {
  double latency_s = 0;
  double bandwidth_bytes_per_s = 0;  // 0: no limit
};

double link_time_s(const LinkModel& link, CollectiveKind kind, std::size_t full_bytes, int world);

std::unique_ptr<Transport> emulate_link(std::unique_ptr<Transport> transport, const LinkModel& link);

}  // namespace attnbench::fsdp
