// popen for standard output, a file for standard error.
#include "tests/cli/program.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace attnbench::tests {

Outcome run_program(const std::string& arguments, const std::string& environment) {
  const std::string errors = testing::TempDir() + "attnbench_cli_" + std::to_string(getpid()) + ".err";
  const std::string command = "env -i PATH=\"$PATH\" HOME=/nonexistent LC_ALL=C " + environment + " " +
                              ATTNBENCH_PROGRAM + " " + arguments + " 2>" + errors;
  Outcome outcome;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> chunk{};
  for (std::size_t count = 0; (count = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) {
    outcome.out.append(chunk.data(), count);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream file(errors);
  outcome.err.assign(std::istreambuf_iterator<char>(file), {});
  std::remove(errors.c_str());
  return outcome;
}

}  // namespace attnbench::tests
