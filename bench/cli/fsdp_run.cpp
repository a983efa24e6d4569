// The three ways to run a case, and the file in which a world hands its outcome to whoever started it.
#include "bench/cli/fsdp_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>

#include "bench/cli/fsdp_cases.hpp"
#include "bench/run/fsdp_local.hpp"
#include "bench/run/fsdp_row.hpp"
#include "bench/run/interrupt.hpp"
#include "fsdp/launch.hpp"
#include "fsdp/nccl.hpp"
#include "fsdp/numbers.hpp"
#include "fsdp/rendezvous.hpp"
#include "kernels/catalog.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
namespace fs = std::filesystem;
namespace status = reports::status;

constexpr const char* kRowFile = "/row.jsonl";
constexpr const char* kErrorsFile = "/errors.tsv";

/// What rank 0 found: a measurement, or with --verify the comparisons.
struct Findings {
  std::optional<run::FsdpMeasurement> measured;
  std::vector<run::ReplayError> errors;
};

/// One rank of a case.
Result<Findings> do_case(const FsdpRun& run, const run::FsdpCase& c, kernels::Device& device,
                         fsdp::Communicator& communicator) {
  Findings findings;
  if (run.trajectory) {
    auto errors = run::replay(*run.trajectory, c.engine, device, communicator, c.model.block.attention);
    if (!errors) return tl::unexpected(errors.error());
    findings.errors = std::move(*errors);
  } else {
    auto measured = run::measure_rank(c, device, communicator);
    if (!measured) return tl::unexpected(measured.error());
    findings.measured = std::move(*measured);
  }
  return findings;
}

/// The row of a replay: no times, the worst comparison.
void add_errors(reports::Row& row, const std::vector<run::ReplayError>& errors) {
  const run::ReplayError* worst = nullptr;
  for (const run::ReplayError& error : errors) {
    if (error.allowed == 0) continue;
    const double share = error.error / error.allowed;
    if (worst == nullptr || !(share <= worst->error / worst->allowed)) worst = &error;
  }
  if (worst == nullptr) return run::finish(row, status::kFailed, "nothing was compared");
  (worst->relative ? row.err_rel_max : row.err_abs_max) = worst->error;
  row.err_tolerance = worst->allowed;
  row.err_tensor = worst->what;
  const std::string reason = fmt::format("{}: error {:.2g}, allowed {:.2g}", worst->what, worst->error, worst->allowed);
  run::finish(row, worst->passed() ? status::kOk : status::kIncorrect, worst->passed() ? "" : reason);
}

FsdpOutcome outcome_of(const FsdpRun& run, const run::FsdpCase& c, const Result<Findings>& findings) {
  FsdpOutcome outcome;
  outcome.row = run::describe_fsdp(c, run.device, run.provenance);
  if (!findings) {
    const bool memory = findings.error().kind == ErrorKind::kOutOfMemory;
    const bool declined =
        findings.error().kind == ErrorKind::kUnsupported || findings.error().kind == ErrorKind::kUsage;
    run::finish(outcome.row,
                memory     ? status::kOom
                : declined ? status::kUnsupported
                           : status::kFailed,
                findings.error().message);
    return outcome;
  }
  outcome.errors = findings->errors;
  if (!findings->measured) {
    add_errors(outcome.row, outcome.errors);
    return outcome;
  }
  run::add_measurement(outcome.row, c, *findings->measured, run.gemm_peak_gflops);
  run::finish(outcome.row, status::kOk, "");
  return outcome;
}

/// The ids of rank 0, by way of whatever started the world.
Result<fsdp::NcclWorld> share_nccl(const run::FsdpCase& c, const fsdp::ForeignWorld& world) {
  fsdp::NcclWorld nccl;
  if (world.rank == 0) {
    auto made = fsdp::make_nccl_world(world.size);
    if (!made) return made;
    nccl = *made;
  }
  nccl.size = world.size;
  constexpr std::size_t kBytes = sizeof nccl.ids;
  auto* const bytes = reinterpret_cast<char*>(nccl.ids.data());
  if (world.launcher == "torchrun") {
    fsdp::MeetingPoint point = world.point;
    point.deadline_s = c.transport.deadline_s;
    auto ok = fsdp::hand_out(point, world.rank, world.size, {bytes, kBytes});
    if (!ok) return tl::unexpected(ok.error());
    return nccl;
  }
  auto transport = fsdp::join_mpi(c.transport);
  if (!transport) return tl::unexpected(transport.error());
  const auto communicator = fsdp::make_threaded(std::move(*transport), c.transport);
  std::vector<double> mine(kBytes / sizeof(double));
  std::memcpy(mine.data(), bytes, kBytes);
  const auto all = fsdp::share_numbers(*communicator, mine);
  if (!all) return tl::unexpected(all.error());
  std::memcpy(bytes, all->data(), kBytes);
  return nccl;
}

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : std::string();
}

/// A folder that goes with its owner.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "attnbench-fsdp-XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<FsdpOutcome> read_outcome(const std::string& directory) {
  auto document = reports::load_rows(directory + kRowFile);
  if (!document) return tl::unexpected(document.error());
  FsdpOutcome outcome;
  outcome.row = document->rows.front();
  std::ifstream file(directory + kErrorsFile);
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> fields;
    std::size_t begin = 0;
    for (std::size_t tab = 0; tab != std::string::npos; begin = tab + 1) {
      tab = line.find('\t', begin);
      fields.push_back(line.substr(begin, tab - begin));
    }
    if (fields.size() != 4) return fail(ErrorKind::kUnreadable, directory + kErrorsFile + " is damaged");
    outcome.errors.push_back({fields[0], std::strtod(fields[1].c_str(), nullptr),
                              std::strtod(fields[2].c_str(), nullptr), fields[3] == "1"});
  }
  return outcome;
}

Result<FsdpOutcome> start_processes(const FsdpRun& run, const run::FsdpCase& c) {
  const Scratch scratch;
  if (scratch.path().empty()) return fail(ErrorKind::kFailed, "no temporary folder can be made; is TMPDIR writable?");
  fsdp::LaunchSpec spec;
  spec.command = rank_arguments(*run.command, c, scratch.path());
  spec.command.insert(spec.command.begin(), own_path());
  spec.size = c.world;
  spec.directory = scratch.path();
  spec.interrupted = &run::interrupted;
  const auto launched = fsdp::launch_ranks(spec);
  if (!launched) return tl::unexpected(launched.error());
  if (launched->interrupted) return fail(ErrorKind::kInterrupted, "the user stopped the run");
  if (!launched->failure.empty()) return fail(ErrorKind::kFailed, launched->failure);
  return read_outcome(scratch.path());
}

}  // namespace

Result<FsdpRun> open_run(const FsdpCommand& command, std::string run_id, bool writes_rows) {
  FsdpRun run;
  run.command = &command;
  run.provenance = {std::move(run_id), command.command, command.seed, run::host_facts()};
  auto device = kernels::open_device(command.options.device);
  if (!device) return tl::unexpected(device.error());
  run.device = (*device)->facts();
  if (command.options.verify.empty()) {
    if (writes_rows) run.gemm_peak_gflops = run::gemm_peak_gflops(**device, command.options.param_dtype);
    return run;
  }
  const auto file = measure::SafeTensors::load(command.options.verify);
  if (!file) return tl::unexpected(file.error());
  auto trajectory = measure::read_trajectory(*file);
  if (!trajectory) return tl::unexpected(trajectory.error());
  run.trajectory = std::move(*trajectory);
  return run;
}

FsdpOutcome run_local(const FsdpRun& run, const run::FsdpCase& c) {
  struct Found {
    std::mutex mutex;
    std::optional<Findings> findings;
  };
  // A thread that hangs outlives this call: what it uses is its own.
  const auto found = std::make_shared<Found>();
  const auto owned = std::make_shared<FsdpRun>(run);
  const auto end = run::run_local_world(
      c, [found, owned, c](int rank, kernels::Device& device, fsdp::Communicator& communicator) -> Result<void> {
        auto findings = do_case(*owned, c, device, communicator);
        if (!findings) return tl::unexpected(findings.error());
        const std::scoped_lock lock(found->mutex);
        if (rank == 0) found->findings = std::move(*findings);
        return {};
      });
  const std::scoped_lock lock(found->mutex);
  FsdpOutcome outcome =
      end.result && found->findings
          ? outcome_of(run, c, *found->findings)
          : outcome_of(run, c,
                       tl::unexpected(end.result ? base::Error{ErrorKind::kFailed, "no result"} : end.result.error()));
  outcome.stuck = end.stuck;
  return outcome;
}

FsdpOutcome run_processes(const FsdpRun& run, const run::FsdpCase& c) {
  auto outcome = start_processes(run, c);
  if (!outcome) {
    FsdpOutcome failed = outcome_of(run, c, tl::unexpected(outcome.error()));
    failed.row.transport = "mpi";
    if (outcome.error().kind == ErrorKind::kInterrupted) {
      run::finish(failed.row, status::kInterrupted, outcome.error().message);
    }
    return failed;
  }
  // The ranks do not know what was typed, nor what this machine can do with all its processors.
  outcome->row.command = run.provenance.command;
  outcome->row.run_id = run.provenance.run_id;
  outcome->row.gemm_peak_gflops = run.gemm_peak_gflops;
  if (run.gemm_peak_gflops && outcome->row.tflops) {
    outcome->row.gemm_pct = *outcome->row.tflops * 1e5 / *run.gemm_peak_gflops;
  }
  return std::move(*outcome);
}

Result<std::optional<FsdpOutcome>> run_as_rank(const FsdpRun& run, run::FsdpCase c, fsdp::Observer* observer) {
  c.transport.observer = observer;
  auto transport = fsdp::join_mpi(c.transport);
  if (!transport) return tl::unexpected(transport.error());
  const fsdp::WorldInfo world = (*transport)->world();
  if (world.size != c.world) {
    return fail(ErrorKind::kUsage,
                fmt::format("MPI has {} ranks where {} were started; under srun take --mpi=pmix", world.size, c.world));
  }
  const auto communicator = run::communicator_for(c, std::move(*transport), c.transport);
  auto device = kernels::open_device("cpu");
  if (!device) return tl::unexpected(device.error());
  (*device)->set_threads(c.threads);
  const auto findings = do_case(run, c, **device, *communicator);
  if (!findings) {
    communicator->abort(findings.error());
    return tl::unexpected(findings.error());
  }
  if (world.rank != 0) return std::optional<FsdpOutcome>();
  return outcome_of(run, c, findings);
}

Result<std::optional<FsdpOutcome>> run_as_gpu(const FsdpRun& run, const run::FsdpCase& c,
                                              const fsdp::ForeignWorld& world) {
  auto nccl = share_nccl(c, world);
  if (!nccl) return tl::unexpected(nccl.error());
  auto device = kernels::open_device(c.device);
  if (!device) return tl::unexpected(device.error());
  const auto communicator = fsdp::join_nccl(*nccl, world.rank, **device, c.transport);
  if (!communicator) return tl::unexpected(communicator.error());
  const auto findings = do_case(run, c, **device, **communicator);
  if (!findings) {
    (*communicator)->abort(findings.error());
    return tl::unexpected(findings.error());
  }
  if (world.rank != 0) return std::optional<FsdpOutcome>();
  return outcome_of(run, c, findings);
}

Result<void> write_outcome(const FsdpOutcome& outcome, const std::string& directory) {
  std::ofstream errors(directory + kErrorsFile);
  for (const run::ReplayError& error : outcome.errors) {
    errors << fmt::format("{}\t{}\t{}\t{}\n", error.what, error.error, error.allowed, error.relative ? 1 : 0);
  }
  std::ofstream rows(directory + kRowFile);
  rows << reports::to_json_line(outcome.row) << '\n';
  errors.flush();
  rows.flush();
  if (errors && rows) return {};
  return fail(ErrorKind::kFailed, directory + " cannot be written to");
}

}  // namespace attnbench::cli
