// popen for standard output, a file for standard error; fork and exec for a program that is sent signals.
#include "tests/cli/program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "tests/sanitizers/settings.hpp"

namespace attnbench::tests {

Outcome run_program(const std::string& arguments, const std::string& environment) {
  const std::string errors = testing::TempDir() + "attnbench_cli_" + std::to_string(getpid()) + ".err";
  std::string command = "env -i PATH=\"$PATH\" HOME=/nonexistent LC_ALL=C ";
  for (const std::string& setting : sanitizer_environment()) command += "'" + setting + "' ";
  command += environment + " " + ATTNBENCH_PROGRAM + " " + arguments + " 2>" + errors;
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

Started::Started(const std::vector<std::string>& arguments, std::string output_path)
    : output_path_(std::move(output_path)) {
  std::vector<std::string> words{ATTNBENCH_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::vector<std::string> settings = sanitizer_environment();
  settings.emplace_back("LC_ALL=C");
  std::vector<char*> environment;
  for (std::string& setting : settings) environment.push_back(setting.data());
  environment.push_back(nullptr);
  child_ = fork();
  if (child_ != 0) return;
  const int file = open(output_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  execve(ATTNBENCH_PROGRAM, pointers.data(), environment.data());
  _exit(127);
}

Started::~Started() {
  if (!ended_) {
    send(SIGKILL);
    waitpid(child_, &status_, 0);
  }
  std::remove(output_path_.c_str());
}

bool Started::wait_until(const std::function<bool()>& seen) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!seen()) {
    if (waitpid(child_, &status_, WNOHANG) == child_) ended_ = true;
    if (ended_ || std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool Started::wait_for_sleeps(int times) {
  const std::int64_t before = sleeps();
  return before >= 0 && wait_until([&] { return sleeps() >= before + times; });
}

void Started::send(int signal) const { kill(child_, signal); }

int Started::wait() {
  wait_until([] { return false; });
  if (!ended_) {
    send(SIGKILL);  // it does not end by itself: the test shall fail, and not hang
    waitpid(child_, &status_, 0);
    ended_ = true;
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
}

std::string Started::output() const {
  std::ifstream file(output_path_);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Of its main thread, as the kernel counts them; -1 when they cannot be read.
std::int64_t Started::sleeps() const {
  std::ifstream file("/proc/" + std::to_string(child_) + "/status");
  const std::string key = "voluntary_ctxt_switches:";
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return std::atoll(line.c_str() + key.size());
  }
  return -1;
}

}  // namespace attnbench::tests
