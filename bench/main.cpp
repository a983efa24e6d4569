// Parses, prints help by itself, and opens the program for everything else.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "bench/cli/streams.hpp"
#include "bench/program.hpp"

namespace {

using namespace attnbench;

/// The folder of this executable, with its slash; empty when it cannot be read.
std::string own_folder() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return "";
  const std::string text(path.data(), static_cast<std::size_t>(length));
  return text.substr(0, text.rfind('/') + 1);
}

int run_program(const cli::Command& command) {
  const std::string library = own_folder() + kProgramLibrary;
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const symbol = handle != nullptr ? dlsym(handle, kProgramSymbol) : nullptr;
  if (symbol == nullptr) {
    std::fprintf(stderr,
                 "error: %s\n  it is built together with this program; build again, or keep the two in one folder\n",
                 dlerror());
    return base::exit_code::kBackendAbsent;
  }
  return reinterpret_cast<ProgramFunction>(symbol)(&command);
}

}  // namespace

int main(int argc, char** argv) {
  cli::fill_closed_streams();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto command = cli::parse(arguments, cli::process_environment());
  if (!command) {
    std::fprintf(stderr, "error: %s\n", command.error().message.c_str());
    return base::exit_code_of(command.error().kind);
  }
  const auto* const printout = std::get_if<cli::Printout>(&*command);
  if (printout != nullptr) std::fputs(printout->text.c_str(), stdout);
  const int code = printout != nullptr ? base::exit_code::kOk : run_program(*command);
  // A full disk or a closed pipe shows up here at the latest; a result that was not written is not a success.
  if (cli::flush_standard_output()) return code;
  std::fputs("error: standard output could not be written\n", stderr);
  return code == base::exit_code::kOk ? base::exit_code::kRowFailed : code;
}
