// `attnbench noise`: launches the program several times over one plan, and writes how far each row's median moved.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "bench/cli/print.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/run/interrupt.hpp"
#include "bench/run/sink.hpp"
#include "reports/emit.hpp"
#include "reports/format.hpp"
#include "reports/launches.hpp"
#include "reports/noise_json.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::Result;
namespace fs = std::filesystem;

int complain(const base::Error& error) {
  print_to(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

/// Where the launches go: the folder of --out, or one that goes away with this.
class Folder {
 public:
  ~Folder() {
    std::error_code error;
    if (passing_) fs::remove_all(path_, error);
  }

  Result<void> make(const std::string& asked) {
    path_ = asked;
    std::error_code error;
    if (!asked.empty()) {
      if (fs::exists(asked, error)) {
        return base::fail(ErrorKind::kUsage, fmt::format("--out {} exists already; name another folder", asked));
      }
      fs::create_directories(asked, error);
      if (!error) return {};
      return base::fail(ErrorKind::kFailed, fmt::format("--out {} cannot be made: {}", asked, error.message()));
    }
    std::string name = (fs::temp_directory_path(error) / "attnbench-noise-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      return base::fail(ErrorKind::kFailed, fmt::format("{} cannot be made: {}", name, std::strerror(errno)));
    }
    path_ = name;
    passing_ = true;
    return {};
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool passing_ = false;
};

/// A sweep in a process of its own, since where a program's memory lies is part of its noise. Its exit code.
int launch(const std::vector<std::string>& arguments) {
  const pid_t child = ::fork();
  if (child < 0) return -1;
  if (child == 0) {
    std::vector<char*> words;
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execv("/proc/self/exe", words.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Result<void> run_launches(const NoiseOptions& options, const std::string& folder) {
  const run::InterruptGuard guard;  // a launch sees the signal too, keeps its rows and leaves
  for (int i = 1; i <= options.launches; ++i) {
    print_to(stderr, "launch {} of {}\n", i, options.launches);
    std::vector<std::string> arguments{"attnbench", "sweep", "--quiet"};
    arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
    arguments.push_back(fmt::format("--out={}/launch-{:02}", folder, i));
    const int code = launch(arguments);
    if (run::interrupted()) return base::fail(ErrorKind::kInterrupted, "interrupted; no noise floor was written");
    if (code == base::exit_code::kOk || code == base::exit_code::kRowFailed) continue;
    return base::fail(code == base::exit_code::kUsage ? ErrorKind::kUsage : ErrorKind::kFailed,
                      fmt::format("launch {} ended with {}; no noise floor was written", i, code));
  }
  return {};
}

}  // namespace

int noise_verb(const NoiseOptions& options) {
  Folder folder;
  if (auto ok = folder.make(options.out_dir); !ok) return complain(ok.error());
  if (auto ok = run_launches(options, folder.path()); !ok) return complain(ok.error());
  const auto launches = reports::load_launches(folder.path());
  if (!launches) return complain(launches.error());
  const reports::Noise noise = reports::noise_of(*launches);
  if (noise.rows.empty()) {
    return complain({ErrorKind::kFailed, "no row has a time in two launches; no noise floor was written"});
  }
  if (auto ok = reports::write_output(options.file, to_json(noise)); !ok) return complain(ok.error());
  std::FILE* const people = options.file == "-" ? stderr : stdout;
  for (const auto& [key, row] : noise.rows) print_to(people, "{:6.2f} %  {}\n", row.floor_pct, key);
  if (options.file != "-") {
    print_to(people, "noise floors of {} rows over {} launches: {}\n", noise.rows.size(), options.launches,
             options.file);
  }
  return base::exit_code::kOk;
}

}  // namespace attnbench::cli
