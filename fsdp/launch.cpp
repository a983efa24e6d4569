// Forks mpiexec, then watches it and, through the board, every rank.
#include "fsdp/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "fsdp/board.hpp"
#include "fsdp/mpi_module.hpp"

extern char** environ;

namespace attnbench::fsdp {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

constexpr auto kLook = std::chrono::milliseconds(10);
constexpr int kBurials = 500;          // looks at a rank that was killed
constexpr double kStartPatience = 60;  // for all ranks to have started

std::string find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    const std::string candidate = rest.substr(0, colon) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.erase(0, std::min(colon + 1, rest.size()));
  }
  return {};
}

Result<std::string> find_mpiexec() {
  for (const char* name : {"mpiexec.openmpi", "mpiexec"}) {
    const std::string found = find_program(name);
    if (!found.empty()) return found;
  }
  return fail(ErrorKind::kAbsent,
              "there is no mpiexec on PATH; install OpenMPI (Debian: openmpi-bin), or take --transport local");
}

/// The environment of mpiexec: without what another mpiexec or Slurm left there, with leave to run as root and to start
/// more ranks than there are processors; waiting ranks yield.
std::vector<std::string> launch_environment() {
  static constexpr const char* kForeign[] = {"OMPI_", "PMIX_", "PRTE_", "PMI_", "ORTE_", "SLURM_"};
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const bool foreign = std::any_of(std::begin(kForeign), std::end(kForeign),
                                     [&](const char* prefix) { return text.rfind(prefix, 0) == 0; });
    if (!foreign) result.push_back(text);
  }
  if (geteuid() == 0) {
    result.emplace_back("OMPI_ALLOW_RUN_AS_ROOT=1");
    result.emplace_back("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
  }
  return result;
}

std::vector<std::string> mpiexec_command(const std::string& mpiexec, const LaunchSpec& spec) {
  std::vector<std::string> command{mpiexec,
                                   "--oversubscribe",
                                   "--bind-to",
                                   "none",
                                   "--mca",
                                   "mpi_yield_when_idle",
                                   "1",
                                   "--mca",
                                   "btl",
                                   "self,vader",
                                   "--mca",
                                   "btl_base_warn_component_unused",
                                   "0",
                                   "-np",
                                   std::to_string(spec.size)};
  command.insert(command.end(), spec.command.begin(), spec.command.end());
  return command;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Child of the fork: async-signal-safe calls alone.
[[noreturn]] void become(char* const* command, char* const* environment, int log, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execve(command[0], command, environment);
  _exit(127);
}

std::string tail(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.find_first_not_of("-") != std::string::npos) lines.push_back(line);
  }
  std::string text;
  for (std::size_t i = lines.size() > 6 ? lines.size() - 6 : 0; i < lines.size(); ++i) text += " | " + lines[i];
  return text.empty() ? " (its log is empty)" : text;
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// The ranks of a run, as their processes.
class Watch {
 public:
  explicit Watch(const Board& board) : board_(board), handles_(static_cast<std::size_t>(board.size()), -1) {}
  ~Watch() {
    for (const int handle : handles_) {
      if (handle >= 0) close(handle);
    }
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  bool all_started() const {
    for (int rank = 0; rank < board_.size(); ++rank) {
      if (!board_.status(rank).started) return false;
    }
    return true;
  }

  /// What is wrong, empty if nothing: an error that a rank wrote down before any rank that is dead without a word.
  std::string look() {
    std::string died;
    for (int rank = 0; rank < board_.size(); ++rank) {
      const RankStatus status = board_.status(rank);
      if (!status.error.empty()) return status.error;
      if (!status.started || status.finished || alive(rank, status)) continue;
      if (!died.empty()) continue;
      const std::string where = status.doing.empty() ? "before its first collective"
                                : status.inside      ? "in the " + status.doing
                                                     : "after the " + status.doing;
      died = fmt::format("rank {} (process {}) died {}", rank, status.pid, where);
    }
    // Whoever wrote down an error did it before the others died of it.
    for (int rank = 0; rank < board_.size() && !died.empty(); ++rank) {
      const RankStatus status = board_.status(rank);
      if (!status.error.empty()) return status.error;
    }
    return died;
  }

  void kill_all() {
    for (int rank = 0; rank < board_.size(); ++rank) {
      const RankStatus status = board_.status(rank);
      if (status.started && alive(rank, status)) kill(status.pid, SIGKILL);
    }
  }

  /// Waits until every rank is gone; those that mpiexec left are this process's own, which collects them.
  void bury() {
    for (int rank = 0; rank < board_.size(); ++rank) {
      const RankStatus status = board_.status(rank);
      for (int i = 0; i < kBurials && status.started && alive(rank, status); ++i) std::this_thread::sleep_for(kLook);
      if (status.started) waitpid(status.pid, nullptr, WNOHANG);
    }
  }

 private:
  /// A handle on the process stays right when its number is given to another.
  bool alive(int rank, const RankStatus& status) {
    int& handle = handles_[static_cast<std::size_t>(rank)];
    if (handle == kGone) return false;
    if (handle < 0) handle = static_cast<int>(syscall(SYS_pidfd_open, status.pid, 0));
    if (handle < 0) {
      handle = errno == ESRCH ? kGone : -1;
      return handle != kGone && kill(status.pid, 0) == 0;
    }
    pollfd look{handle, POLLIN, 0};
    return poll(&look, 1, 0) == 0;
  }

  static constexpr int kGone = -2;
  const Board& board_;
  std::vector<int> handles_;
};

/// Waits for mpiexec to end; notes the first thing that goes wrong, and does not wait long after it.
LaunchOutcome attend(pid_t mpiexec, const LaunchSpec& spec, const Board& board, const std::string& log) {
  Watch watch(board);
  LaunchOutcome outcome;
  const Clock::time_point began = Clock::now();
  std::optional<Clock::time_point> ending;
  int status = 0;
  while (waitpid(mpiexec, &status, WNOHANG) == 0) {
    if (!ending) {
      outcome.failure = watch.look();
      outcome.interrupted = spec.interrupted && spec.interrupted();
      if (outcome.failure.empty() && seconds_since(began) > kStartPatience && !watch.all_started()) {
        outcome.failure =
            fmt::format("not all of {} ranks have started within {:.0f} s:{}", spec.size, kStartPatience, tail(log));
      }
      if (!outcome.failure.empty() || outcome.interrupted) ending = Clock::now();
      if (outcome.interrupted) kill(mpiexec, SIGTERM);
    } else if (seconds_since(*ending) > spec.patience_s) {
      watch.kill_all();
      kill(-mpiexec, SIGKILL);
    }
    std::this_thread::sleep_for(kLook);
  }
  const bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!clean && outcome.failure.empty() && !outcome.interrupted) outcome.failure = watch.look();
  if (!clean && outcome.failure.empty() && !outcome.interrupted) {
    outcome.failure = "mpiexec did not end in good order:" + tail(log);
  }
  watch.kill_all();
  watch.bury();
  return outcome;
}

int number_in(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? -1 : std::atoi(text);
}

}  // namespace

Result<void> check_mpi() {
  if (const auto module = mpi_module(); !module) return tl::unexpected(module.error());
  if (const auto found = find_mpiexec(); !found) return tl::unexpected(found.error());
  return {};
}

Result<LaunchOutcome> launch_ranks(const LaunchSpec& spec) {
  const auto mpiexec = find_mpiexec();
  if (!mpiexec) return tl::unexpected(mpiexec.error());
  const auto board = Board::create(spec.directory + "/board", spec.size);
  if (!board) return tl::unexpected(board.error());
  const std::string log = spec.directory + "/log";
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return fail(ErrorKind::kFailed, fmt::format("{} cannot be made: {}", log, std::strerror(errno)));
  std::vector<std::string> command = mpiexec_command(*mpiexec, spec), environment = launch_environment();
  const std::vector<char*> arguments = pointers(command), variables = pointers(environment);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // ranks that lose their mpiexec become children of this process
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) become(arguments.data(), variables.data(), file, self);
  close(file);
  if (child < 0)
    return fail(ErrorKind::kFailed, fmt::format("{} cannot be started: {}", *mpiexec, std::strerror(errno)));
  auto outcome = attend(child, spec, **board, log);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  return outcome;
}

std::optional<ForeignWorld> foreign_world() {
  struct Names {
    const char* launcher;
    const char* rank;
    const char* size;
    const char* local;
  };
  // srun sets its own variables also where it starts no task of this program, so the step's are asked for.
  static constexpr Names kNames[] = {
      {"mpiexec", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
      {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
      {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"}};
  for (const Names& names : kNames) {
    const int rank = number_in(names.rank), size = number_in(names.size);
    if (rank < 0 || size <= 0) continue;
    ForeignWorld world{names.launcher, rank, size, std::max(0, number_in(names.local)), {}};
    const char* const host = std::getenv("MASTER_ADDR");
    world.point.host = host == nullptr ? "127.0.0.1" : host;
    world.point.port = std::max(0, number_in("MASTER_PORT")) + 1;
    return world;
  }
  return std::nullopt;
}

Result<std::unique_ptr<Transport>> join_mpi(const TransportOptions& options) {
  const auto module = mpi_module();
  if (!module) return tl::unexpected(module.error());
  return (*module)->join(options);
}

int run_mpi_rank(const std::string& directory, const RankBody& body) {
  const auto complain = [](const base::Error& error) {
    std::fputs(fmt::format("error: {}\n", error.message).c_str(), stderr);  // print throws where a stream is full
    return base::exit_code_of(error.kind);
  };
  const auto module = mpi_module();
  if (!module) return complain(module.error());
  std::unique_ptr<Board> board;
  if (!directory.empty()) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto joined = Board::join(directory + "/board", std::max(0, number_in("OMPI_COMM_WORLD_RANK")));
    if (!joined) return complain(joined.error());
    board = std::move(*joined);
  }
  const auto done = body(board ? &board->observer() : nullptr);
  if (!done) {
    if (board) board->failed(done.error());
    complain(done.error());
    std::fflush(nullptr);
    (*module)->abort(base::exit_code::kRowFailed);
    _exit(base::exit_code::kRowFailed);
  }
  if (board) board->finished();
  (*module)->leave();
  return base::exit_code::kOk;
}

}  // namespace attnbench::fsdp
