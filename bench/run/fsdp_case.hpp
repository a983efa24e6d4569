// One point of the fsdp verb: what every rank is to do, and what comes out of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/error.hpp"
#include "fsdp/communicator.hpp"
#include "fsdp/emulated_link.hpp"
#include "fsdp/engine.hpp"
#include "fsdp/model.hpp"
#include "fsdp/transport.hpp"
#include "kernels/device/device.hpp"

namespace attnbench::run {

struct FsdpCase {
  std::string key;
  std::string device = "cpu";            // id of the first rank's; nccl: the next rank has the next one
  std::string transport_word = "local";  // local, mpi, nccl
  fsdp::ModelConfig model;
  fsdp::TokenShape tokens;  // of one rank and micro-batch
  fsdp::EngineOptions engine;
  fsdp::TransportOptions transport;
  std::optional<fsdp::LinkModel> link;
  std::string link_text;
  int world = 1;
  int threads = 1;  // of one rank
  int steps = 10;
  int warmup = 3;
  std::uint64_t seed = 1;
};

/// What the ranks measured together; equal on all of them but for the memory, which is this rank's.
struct FsdpMeasurement {
  fsdp::WorldInfo world;
  std::vector<fsdp::StepTimes> steps;  // of the rank that was slowest in each
  double first_step_s = 0;
  double loss = 0;
  fsdp::Communicator::Totals totals{};  // of all measured steps, times averaged over ranks
  double flop = 0;                      // model FLOP of a step, all ranks
  std::int64_t parameters = 0;
  fsdp::MemoryUse memory, predicted;
  std::optional<std::int64_t> rss_growth_bytes;  // per rank
  std::optional<std::int64_t>
      device_growth_bytes;  // per rank: what a GPU has less than before; its libraries' included
  bool by_events = false;   // times are a GPU's
};

/// One rank's part: engine, warm-up, measured steps. Every rank calls it with the same case.
///
/// Errors  of the engine
base::Result<FsdpMeasurement> measure_rank(const FsdpCase& c, kernels::Device& device,
                                           fsdp::Communicator& communicator);

/// Bytes of one rank by the memory formula, nothing allocated. Errors  of the engine
base::Result<std::size_t> predicted_bytes(const FsdpCase& c, std::string_view transport, kernels::Device& device);

/// The transport under the link that the case asks for, and its communicator.
std::unique_ptr<fsdp::Communicator> communicator_for(const FsdpCase& c, std::unique_ptr<fsdp::Transport> transport,
                                                     const fsdp::TransportOptions& options);

/// Matrix products per second of the device in a dtype, 1e9 FLOP: the best of several runs of 1024 cubed, on a GPU of
/// 4096 cubed. Empty where the device has no library.
std::optional<double> gemm_peak_gflops(kernels::Device& device, kernels::Dtype dtype);

}  // namespace attnbench::run
