// The built program as a test sees it: arguments in, streams and exit code out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace attnbench::tests {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

/// Runs `attnbench <arguments>` through the shell, without any ATTNBENCH_* variable but those in `environment`
/// (e.g. "ATTNBENCH_BATCH=2").
Outcome run_program(const std::string& arguments, const std::string& environment = "");

/// The program at work, for tests that send it a signal. Both streams go to one file.
class Started {
 public:
  Started(const std::vector<std::string>& arguments, std::string output_path);
  ~Started();
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  /// Looks again and again until `seen`. False: the program ended, or two minutes went by.
  bool wait_until(const std::function<bool()>& seen);

  /// Waits until the program has gone to sleep `times` times more: the mock kernel sleepy does it in every sample.
  bool wait_for_sleeps(int times);

  void send(int signal) const;

  /// The exit code once it has ended, or 1000 + the signal that killed it; after two minutes that is this function's.
  int wait();

  /// What it has printed so far.
  std::string output() const;

 private:
  std::int64_t sleeps() const;

  std::string output_path_;
  pid_t child_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace attnbench::tests
