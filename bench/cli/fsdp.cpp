// `attnbench fsdp`: trains a sharded model at every world size, one row each; or follows a golden training run.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "bench/cli/fsdp_cases.hpp"
#include "bench/cli/fsdp_plan.hpp"
#include "bench/cli/fsdp_run.hpp"
#include "bench/cli/print.hpp"
#include "bench/cli/sweep_output.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/run/fsdp_row.hpp"
#include "bench/run/interrupt.hpp"
#include "bench/run/sink.hpp"
#include "fsdp/launch.hpp"
#include "fsdp/nccl.hpp"
#include "kernels/catalog.hpp"
#include "reports/rows_io.hpp"
#include "reports/table.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
namespace status = reports::status;

int complain(const base::Error& error) {
  print_to(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

/// Where rows and lines go; whoever is not rank 0 of a world has none.
class Output {
 public:
  static Result<Output> open(const FsdpCommand& command) {
    Output output(command.outputs);
    std::string directory = command.outputs.out_dir;
    if (directory.empty() && !command.options.verify.empty()) return output;  // a check keeps no rows unless asked
    if (directory.empty()) {
      auto made = run::make_default_directory();
      if (!made) return tl::unexpected(made.error());
      directory = std::move(*made);
    } else if (auto ok = run::prepare_directory(directory, reports::kRowsFile, run::Resume::kNever); !ok) {
      return tl::unexpected(ok.error());
    }
    output.rows_path_ = (std::filesystem::path(directory) / reports::kRowsFile).string();
    auto sink = run::file_sink(output.rows_path_, &reports::to_json_line);
    if (!sink) return tl::unexpected(sink.error());
    output.sink_ = std::move(*sink);
    output.document_.source = directory;
    return output;
  }

  void header(bool verifying, const FsdpRun& run, const std::vector<run::FsdpCase>& cases) {
    reports::TableFit fit;
    for (const run::FsdpCase& c : cases) fit.add(run::describe_fsdp(c, run.device, run.provenance));
    style_ = fit.applied_to(style_);
    if (!verifying) say(reports::table_header(style_, reports::RowKind::kTraining));
  }

  Result<void> add(const FsdpOutcome& outcome) {
    if (!outcome.errors.empty()) say(comparisons(outcome));
    if (outcome.errors.empty()) say(reports::table_row(outcome.row, style_));
    document_.rows.push_back(outcome.row);
    return sink_ ? sink_->row(outcome.row) : Result<void>();
  }

  Result<void> finish(bool verifying) {
    if (!verifying && !document_.rows.empty()) say(reports::table_summary(document_, {}, style_));
    if (!rows_path_.empty() && !document_.rows.empty()) say(fmt::format("rows: {}\n", rows_path_));
    return document_.rows.empty() ? Result<void>() : write_reports(*outputs_, document_, "naive");
  }

  const std::vector<reports::Row>& rows() const { return document_.rows; }

 private:
  explicit Output(const Outputs& outputs) : outputs_(&outputs), people_(outputs.owns_stdout() ? stderr : stdout) {
    style_.color = use_color(outputs.color, ::fileno(people_));
    style_.width = terminal_width(::fileno(people_));
  }

  void say(const std::string& text) const {
    if (outputs_->quiet) return;
    print_to(people_, "{}", text);
    std::fflush(people_);
  }

  static std::string comparisons(const FsdpOutcome& outcome) {
    const reports::Row& row = outcome.row;
    std::string text = fmt::format("{} rank{}, {}, {}, prefetch {}\n", *row.world_size, *row.world_size == 1 ? "" : "s",
                                   row.strategy, row.dtype, *row.prefetch);
    for (const run::ReplayError& error : outcome.errors) {
      const std::string verdict =
          error.allowed == 0 ? "not judged"
                             : fmt::format("allowed {:.1g}  {}", error.allowed, error.passed() ? "pass" : "FAIL");
      text += fmt::format("  {:<44} {:>8.1e} {}  {}\n", error.what, error.error,
                          error.relative ? "relative" : "absolute", verdict);
    }
    return text;
  }

  const Outputs* outputs_;
  std::FILE* people_;
  reports::TableStyle style_;
  std::string rows_path_;
  std::unique_ptr<run::RowSink> sink_;
  reports::Document document_;
};

int exit_code_of(const std::vector<reports::Row>& rows) {
  for (const reports::Row& row : rows) {
    if (row.status == status::kInterrupted) return 128 + run::interrupt_signal();
  }
  for (const reports::Row& row : rows) {
    if (status::is_failure(row.status)) return base::exit_code::kRowFailed;
  }
  return base::exit_code::kOk;
}

/// local or mpi, for one case. auto takes processes where there are several ranks and MPI is here.
Result<std::string> transport_for(const FsdpOptions& options, const run::FsdpCase& c) {
  if (options.transport == "nccl") {
    if (const auto version = fsdp::nccl_version(); !version) return tl::unexpected(version.error());
    if (options.device == "cpu") {
      return fail(ErrorKind::kUsage, "--transport nccl brings GPUs together: add --device cuda");
    }
    return options.transport;
  }
  if (options.transport == "local") return options.transport;
  if (options.device != "cpu") {
    if (options.transport == "auto") return std::string("local");
    return fail(ErrorKind::kUsage, "--transport mpi brings processors together; ranks on " + options.device +
                                       " take --transport local (they share it) or nccl (a GPU each)");
  }
  const auto mpi = fsdp::check_mpi();
  if (options.transport == "mpi") {
    if (!mpi) return tl::unexpected(mpi.error());
    return options.transport;
  }
  return std::string(mpi && c.world > 1 ? "mpi" : "local");
}

/// How each case runs here and what it needs; a case that --verify brings has another shape, so nothing is asked of it.
struct LocalPlan {
  std::vector<std::string> transports;
  std::vector<FsdpDemand> demands;
};

Result<LocalPlan> plan_here(const FsdpCommand& command, const std::vector<run::FsdpCase>& cases) {
  const auto device = kernels::open_device(command.options.device);
  if (!device) return tl::unexpected(device.error());
  LocalPlan plan;
  for (const run::FsdpCase& c : cases) {
    auto transport = transport_for(command.options, c);
    if (!transport) return tl::unexpected(transport.error());
    FsdpDemand demand;
    if (command.options.verify.empty()) {
      (*device)->set_threads(c.threads);
      auto found = demand_of(c, *transport, **device);
      if (!found) return tl::unexpected(found.error());
      demand = std::move(*found);
    }
    plan.transports.push_back(std::move(*transport));
    plan.demands.push_back(std::move(demand));
  }
  return plan;
}

/// One case, or why it is not tried.
FsdpOutcome run_case(const FsdpCommand& command, const FsdpRun& run, const run::FsdpCase& c,
                     const std::string& transport, const FsdpDemand& demand) {
  if (command.try_oom || demand.refusal.empty()) {
    return transport == "mpi" ? run_processes(run, c) : run_local(run, c);
  }
  FsdpOutcome outcome;
  outcome.row = run::describe_fsdp(c, run.device, run.provenance);
  outcome.row.transport = transport;
  outcome.row.predicted_bytes = static_cast<std::int64_t>(demand.rank_bytes);
  run::finish(outcome.row, status::kOomPredicted, demand.refusal);
  return outcome;
}

/// Cases one after the other, started from here.
int run_alone(const FsdpCommand& command, const FsdpRun& run, const std::vector<run::FsdpCase>& cases,
              const LocalPlan& plan) {
  auto output = Output::open(command);
  if (!output) return complain(output.error());
  const run::InterruptGuard guard;
  output->header(run.trajectory.has_value(), run, cases);
  bool stuck = false;
  for (std::size_t i = 0; i < cases.size() && !stuck && !run::interrupted(); ++i) {
    run::FsdpCase c = cases[i];
    c.transport_word = plan.transports[i];
    FsdpOutcome outcome = run_case(command, run, c, plan.transports[i], plan.demands[i]);
    if (outcome.row.status == status::kOk) run::add_scaling(outcome.row, output->rows());
    if (outcome.row.status == status::kFailed) print_to(stderr, "error: {}\n", outcome.row.reason);
    if (auto ok = output->add(outcome); !ok) return complain(ok.error());
    stuck = outcome.stuck;
  }
  if (auto ok = output->finish(run.trajectory.has_value()); !ok) return complain(ok.error());
  const int code = run::interrupted() ? 128 + run::interrupt_signal() : exit_code_of(output->rows());
  if (!stuck) return code;
  std::fflush(nullptr);
  _exit(base::exit_code::kRowFailed);
}

/// A rank of a world that was started for one case.
int run_started(const FsdpCommand& command, const FsdpRun& run, const std::vector<run::FsdpCase>& cases) {
  const std::string& directory = command.options.worker;
  return fsdp::run_mpi_rank(directory, [&](fsdp::Observer* observer) -> Result<void> {
    const auto outcome = run_as_rank(run, cases.front(), observer);
    if (!outcome) return tl::unexpected(outcome.error());
    return *outcome ? write_outcome(**outcome, directory) : Result<void>();
  });
}

/// torchrun brings no MPI: its ranks are plain processes, which it ends together.
int in_world(const fsdp::ForeignWorld& world, const fsdp::RankBody& body) {
  if (world.launcher != "torchrun") return fsdp::run_mpi_rank("", body);
  const auto done = body(nullptr);
  return done ? base::exit_code::kOk : complain(done.error());
}

/// A rank of a world that somebody else started: every case in this world; rank 0 writes and speaks.
int run_foreign(const FsdpCommand& command, const FsdpRun& run, const std::vector<run::FsdpCase>& cases,
                const fsdp::ForeignWorld& world) {
  const bool speaks = world.rank == 0;
  int code = base::exit_code::kOk;
  const int ended = in_world(world, [&](fsdp::Observer* observer) -> Result<void> {
    std::optional<Output> output;
    if (speaks) {
      auto opened = Output::open(command);
      if (!opened) return tl::unexpected(opened.error());
      output.emplace(std::move(*opened));
      output->header(run.trajectory.has_value(), run, cases);
    }
    for (const run::FsdpCase& c : cases) {
      auto outcome = c.device == "cpu" ? run_as_rank(run, c, observer) : run_as_gpu(run, c, world);
      if (!outcome) return tl::unexpected(outcome.error());
      if (!*outcome) continue;
      if (auto ok = output->add(**outcome); !ok) return ok;
    }
    if (!output) return {};
    code = exit_code_of(output->rows());
    return output->finish(run.trajectory.has_value());
  });
  return ended != base::exit_code::kOk ? ended : code;
}

/// The world sizes of a run inside somebody else's world: its size alone.
Result<void> take_world(FsdpCommand& command, const fsdp::ForeignWorld& world) {
  FsdpOptions& options = command.options;
  const bool gpus = options.device != "cpu" || options.transport == "nccl";
  if (world.launcher == "torchrun" && !gpus) {
    return fail(ErrorKind::kAbsent,
                fmt::format("torchrun started this (RANK {} of WORLD_SIZE {}), and its processes can meet through NCCL "
                            "alone: add --device cuda; or start it with mpiexec, or alone, and it starts its ranks "
                            "itself",
                            world.rank, world.size));
  }
  if (gpus && (options.transport == "local" || options.transport == "mpi")) {
    return fail(ErrorKind::kUsage,
                fmt::format("processes with a GPU each meet through NCCL, not --transport {}", options.transport));
  }
  if (gpus) {
    if (const auto version = fsdp::nccl_version(); !version) return tl::unexpected(version.error());
    options.transport = "nccl";
    options.device = fmt::format("cuda:{}", world.local_rank);
  }
  auto& sizes = options.world_size;
  if (!sizes.empty() && (sizes.size() != 1 || sizes.front() != world.size)) {
    return fail(ErrorKind::kUsage, fmt::format("{} started {} ranks, and that is the world: leave --world-size out",
                                               world.launcher, world.size));
  }
  sizes = {world.size};
  return {};
}

}  // namespace

int fsdp_verb(const FsdpCommand& given) {
  FsdpCommand command = given;
  const bool started = !command.options.worker.empty();
  const auto foreign = started ? std::nullopt : fsdp::foreign_world();
  if (foreign) {
    if (auto ok = take_world(command, *foreign); !ok) return complain(ok.error());
  }
  if (command.options.world_size.empty()) command.options.world_size = {1, 2};
  const auto cases = fsdp_cases(command);
  if (!cases) return complain(cases.error());
  std::optional<LocalPlan> plan;
  if (!started && !foreign) {
    auto here = plan_here(command, *cases);
    if (!here) return complain(here.error());
    plan = std::move(*here);
  }
  if (command.dry_run && plan) {
    print_to(stdout, "{}", fsdp_plan_table(*cases, plan->transports, plan->demands));
    return base::exit_code::kOk;
  }
  const bool writes_rows = !started && (!foreign || foreign->rank == 0);
  const auto run = open_run(command, run::utc_now() + "-" + std::to_string(::getpid()), writes_rows);
  if (!run) return complain(run.error());
  if (started) return run_started(command, *run, *cases);
  if (foreign) return run_foreign(command, *run, *cases, *foreign);
  return run_alone(command, *run, *cases, *plan);
}

}  // namespace attnbench::cli
