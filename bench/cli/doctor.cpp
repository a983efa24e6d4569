// attnbench doctor: what was found on this machine, what is missing, what to type.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "bench/base/units.hpp"
#include "bench/base/version.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/cli/version_text.hpp"
#include "fsdp/launch.hpp"
#include "kernels/catalog.hpp"

namespace attnbench::cli {
namespace {

/// First line of a small file, empty when there is none.
std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

class Checkup {
 public:
  void found(std::string_view what, const std::string& value) {
    if (!value.empty()) text_ += fmt::format("  {:<18} {}\n", what, value);
  }
  void heading(std::string_view name) { text_ += fmt::format("{}\n", name); }
  void advise(std::string sentence) { advice_.push_back(std::move(sentence)); }

  std::string text() const {
    std::string text = text_ + "Advice\n";
    for (const std::string& sentence : advice_) text += "  - " + sentence + "\n";
    if (advice_.empty()) text += "  nothing is missing; type: attnbench sweep\n";
    return text;
  }

 private:
  std::string text_;
  std::vector<std::string> advice_;
};

void add_device(Checkup& checkup, const kernels::DeviceFacts& facts, std::size_t kernel_count) {
  const bool cuda = facts.kind == kernels::DeviceKind::kCuda;
  const auto bytes = [](std::uint64_t value) {
    return value == 0 ? std::string() : base::format_bytes(static_cast<double>(value));
  };
  checkup.found(facts.id, facts.name);
  checkup.found(cuda ? "multiprocessors" : "processors", facts.cores > 0 ? fmt::format("{}", facts.cores) : "");
  checkup.found("instruction set", facts.isa);
  checkup.found("memory", bytes(facts.memory_total_bytes));
  checkup.found("memory free", bytes(facts.memory_free_bytes));
  checkup.found("last-level cache", bytes(facts.last_level_cache_bytes));
  checkup.found("driver", facts.driver);
  for (const auto& [name, version] : facts.libraries) checkup.found(name, version);
  checkup.found("kernels", fmt::format("{}", kernel_count));
}

void add_backend(Checkup& checkup, std::string_view heading, std::string_view name) {
  checkup.heading(heading);
  const auto backend = kernels::find_backend(name);
  if (!backend) {
    checkup.found("absent", backend.error().message);
    checkup.advise(backend.error().message);
    return;
  }
  const auto devices = (*backend)->devices();
  if (!devices) {
    checkup.found("absent", devices.error().message);
    checkup.advise(devices.error().message);
    return;
  }
  for (const kernels::DeviceFacts& facts : *devices) add_device(checkup, facts, (*backend)->kernels().size());
}

/// What the fsdp verb can start ranks as.
void add_ranks(Checkup& checkup) {
  checkup.heading("Ranks");
  checkup.found("local", "threads of one process");
  const auto mpi = fsdp::check_mpi();
  checkup.found("mpi", mpi ? "processes, through mpiexec" : "absent: " + mpi.error().message);
  if (!mpi) checkup.advise("for ranks as processes: " + mpi.error().message);
}

void add_machine(Checkup& checkup) {
  checkup.heading("Machine");
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  checkup.found("kernel", first_line("/proc/sys/kernel/osrelease"));
  checkup.found("governor", governor.empty() ? "not readable here (a virtual machine or a container)" : governor);
  const std::string load = first_line("/proc/loadavg");
  checkup.found("load average", load.substr(0, load.find(' ')));
  if (!governor.empty() && governor != "performance") {
    checkup.advise("the clock follows the load (governor " + governor +
                   "); for steadier times type: sudo cpupower "
                   "frequency-set -g performance");
  }
  if (std::atof(load.c_str()) > 0.5) {
    checkup.advise("other programs are running (load average " + load.substr(0, load.find(' ')) +
                   "); times will be longer and noisier than on an idle machine");
  }
}

}  // namespace

int doctor_verb(const DoctorOptions&) {
  Checkup checkup;
  checkup.heading("Build");
  const base::BuildInfo& info = base::build_info();
  checkup.found("version", std::string(info.version));
  checkup.found("commit", info.commit.empty() ? "unknown (not built from a git checkout)" : std::string(info.commit));
  checkup.found("compiler", std::string(info.compiler));
  checkup.found("flags", std::string(info.flags));
  if (info.build_type != "Release") {
    checkup.advise("this is a " + std::string(info.build_type) +
                   " build, whose times mean little; type: cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake "
                   "--build build");
  }
  add_machine(checkup);
  add_backend(checkup, "CPU", "cpu");
  add_backend(checkup, "CUDA", "cuda");
  add_ranks(checkup);
  std::fputs(checkup.text().c_str(), stdout);
  return base::exit_code::kOk;
}

}  // namespace attnbench::cli
