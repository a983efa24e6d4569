// The built program as a test sees it: arguments in, streams and exit code out.
#pragma once

#include <string>

namespace attnbench::tests {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

/// Runs `attnbench <arguments>` through the shell, without any ATTNBENCH_* variable but those in `environment`
/// (e.g. "ATTNBENCH_BATCH=2").
Outcome run_program(const std::string& arguments, const std::string& environment = "");

}  // namespace attnbench::tests
