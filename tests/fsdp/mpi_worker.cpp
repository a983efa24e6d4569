// A rank for tests of the launcher: trains the toy, and misbehaves if it is told to.
//
//   fsdp_mpi_worker DIRECTORY DEADLINE FAULT     FAULT: none, kill, sleep, model, exit; rank 1 has it
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "fsdp/launch.hpp"
#include "kernels/device/cpu_device.hpp"
#include "toy.hpp"

namespace {

using namespace attnbench;
using namespace attnbench::fsdp;

constexpr TokenShape kShape{2, 5};

/// The weights that this rank keeps, as text: `name begin value value ...` per line.
base::Result<void> write_weights(const Engine& engine, const std::string& path) {
  std::ofstream file(path);
  file.precision(9);
  for (const Unit& unit : engine.layout().units) {
    for (const Placement& param : unit.params) {
      std::int64_t begin = 0;
      const auto values = engine.read_kept(param.spec.name, Engine::Kept::kWeight, begin);
      if (!values) return tl::unexpected(values.error());
      file << param.spec.name << ' ' << begin;
      for (const float value : *values) file << ' ' << value;
      file << '\n';
    }
  }
  return {};
}

void misbehave(const std::string& fault, int rank, std::int64_t step) {
  if (rank != 1 || step != 2) return;
  if (fault == "kill") std::raise(SIGKILL);
  if (fault == "stop") std::raise(SIGSTOP);
  if (fault == "sleep") std::this_thread::sleep_for(std::chrono::seconds(600));
  if (fault == "exit") _exit(0);
}

base::Result<void> train(std::unique_ptr<Transport> transport, const TransportOptions& options,
                         const std::string& directory, const std::string& fault) {
  const int rank = transport->world().rank, size = transport->world().size;
  const auto communicator = make_threaded(std::move(transport), options);
  kernels::CpuDevice device(1);
  tests::ToyShape toy;
  if (fault == "model" && rank == 1) toy.hidden = 300;
  const Model model = tests::toy_model(toy);
  auto engine = Engine::make(model, kShape, {}, device, *communicator);
  if (!engine) return tl::unexpected(engine.error());
  if (auto ok = (*engine)->initialize(1); !ok) return ok;
  for (std::int64_t step = 0; step < 4; ++step) {
    misbehave(fault, rank, step);
    const auto tokens = tests::random_tokens(static_cast<std::uint64_t>(step), kShape.batch * size, kShape.seq, 11);
    const TokenBatch batch = tokens.rows(rank * kShape.batch, kShape);
    const auto report = (*engine)->step({&batch, 1});
    if (!report) return tl::unexpected(report.error());
  }
  return write_weights(**engine, directory + "/weights." + std::to_string(rank));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string directory = argv[1], fault = argv[3];
  TransportOptions options;
  options.deadline_s = std::atof(argv[2]);
  return run_mpi_rank(directory, [&](Observer* observer) -> base::Result<void> {
    options.observer = observer;
    auto transport = join_mpi(options);
    if (!transport) return tl::unexpected(transport.error());
    return train(std::move(*transport), options, directory, fault);
  });
}
