// From a command to its verb: the composition root of the shared library.
#include "bench/program.hpp"

#include <cstdio>
#include <exception>
#include <variant>

#include "bench/cli/dry_run.hpp"
#include "bench/cli/verbs.hpp"

namespace attnbench {
namespace {

struct Dispatch {
  int operator()(const cli::SweepOptions& options) const {
    return options.dry_run ? cli::dry_run_verb(options) : cli::sweep_verb(options);
  }
  int operator()(const cli::ReportOptions& options) const { return cli::report_verb(options); }
  int operator()(const cli::VerifyOptions& options) const { return cli::verify_verb(options); }
  int operator()(const cli::GbenchOptions& options) const { return cli::gbench_verb(options); }
  int operator()(const cli::FsdpCommand& command) const { return cli::fsdp_verb(command); }
  int operator()(const cli::CompareOptions& options) const { return cli::compare_verb(options); }
  int operator()(const cli::NoiseOptions& options) const { return cli::noise_verb(options); }
  int operator()(const cli::ListOptions& options) const { return cli::list_verb(options); }
  int operator()(const cli::ExplainOptions& options) const { return cli::explain_verb(options); }
  int operator()(const cli::DoctorOptions& options) const { return cli::doctor_verb(options); }
  int operator()(const cli::Printout&) const { return base::exit_code::kOk; }  // printed without opening the library
};

}  // namespace
}  // namespace attnbench

extern "C" __attribute__((visibility("default"))) int attnbench_program_run(const attnbench::cli::Command* command) {
  try {
    return std::visit(attnbench::Dispatch{}, *command);
  } catch (const std::exception& error) {  // no memory for the program's own lists is the likely one
    std::fprintf(stderr, "error: %s\n", error.what());
    return attnbench::base::exit_code::kRowFailed;
  }
}
