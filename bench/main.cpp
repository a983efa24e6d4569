// Composition root: arguments to a verb, a verb to an exit code.
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "bench/cli/dry_run.hpp"
#include "bench/cli/parse.hpp"
#include "bench/cli/verbs.hpp"

namespace {

using namespace attnbench;

struct Dispatch {
  int operator()(const cli::SweepOptions& options) const {
    return options.dry_run ? cli::dry_run_verb(options) : cli::sweep_verb(options);
  }
  int operator()(const cli::ReportOptions& options) const { return cli::report_verb(options); }
  int operator()(const cli::VerifyOptions& options) const { return cli::verify_verb(options); }
  int operator()(const cli::GbenchOptions& options) const { return cli::gbench_verb(options); }
  int operator()(const cli::ListOptions& options) const { return cli::list_verb(options); }
  int operator()(const cli::ExplainOptions& options) const { return cli::explain_verb(options); }
  int operator()(const cli::DoctorOptions& options) const { return cli::doctor_verb(options); }
  int operator()(const cli::Printout& printout) const {
    std::fputs(printout.text.c_str(), stdout);
    return base::exit_code::kOk;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto command = cli::parse(arguments, cli::process_environment());
  if (!command) {
    std::fprintf(stderr, "error: %s\n", command.error().message.c_str());
    return base::exit_code_of(command.error().kind);
  }
  const int code = std::visit(Dispatch{}, *command);
  // A full disk or a closed pipe shows up here at the latest; a result that was not written is not a success.
  if (std::fflush(stdout) != 0 && code == base::exit_code::kOk) {
    std::fputs("error: standard output could not be written\n", stderr);
    return base::exit_code::kRowFailed;
  }
  return code;
}
