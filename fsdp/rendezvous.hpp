// How ranks that know nothing of each other but an address get the same bytes: rank 0 hands them out.
#pragma once

#include <span>
#include <string>

#include "bench/base/error.hpp"

namespace attnbench::fsdp {

struct MeetingPoint {
  std::string host;  // of rank 0
  int port = 0;
  double deadline_s = 60;
};

/// Rank 0 gives `bytes` to every other rank, which waits for it to listen. Returns when all have them.
///
/// Errors  kFailed: the port is taken, or a rank (or rank 0) has not come within the deadline
base::Result<void> hand_out(const MeetingPoint& point, int rank, int size, std::span<char> bytes);

}  // namespace attnbench::fsdp
