// A world of threads in this process.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/run/fsdp_case.hpp"

namespace attnbench::run {

/// How a world of threads ended. A rank that is stuck keeps its thread: the process can only be left with _exit then.
struct LocalEnd {
  base::Result<void> result;  // the first error
  bool stuck = false;
};

/// What each rank runs. It must own what it touches: a rank that is stuck outlives the call.
using LocalBody =
    std::function<base::Result<void>(int rank, kernels::Device& device, fsdp::Communicator& communicator)>;

/// Runs the body on every rank, each with a device of its own (a processor of `c.threads` threads; or the one GPU that
/// all share), and waits for all; once one has failed, for
/// the deadline and a little more.
LocalEnd run_local_world(const FsdpCase& c, LocalBody body);

}  // namespace attnbench::run
