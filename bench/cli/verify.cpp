// `attnbench verify DIR`: every kernel against inputs and outputs that another implementation computed.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/cli/devices.hpp"
#include "bench/cli/open_device.hpp"
#include "bench/cli/sweep_output.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/measure/golden.hpp"
#include "bench/measure/workload.hpp"
#include "bench/plan/select.hpp"
#include "bench/run/interrupt.hpp"
#include "bench/run/provenance.hpp"
#include "bench/run/sink.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::cli {
namespace {

using base::Result;
using kernels::Dtype;
namespace fs = std::filesystem;

int complain(const base::Error& error) {
  fmt::print(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

/// Outcomes so far, as counts and as rows.
struct Tally {
  int passed = 0;
  int failed = 0;
  int declined = 0;
  run::Provenance provenance;
  reports::Document document;
};

/// Files named *.safetensors in the directory, by name; a file named itself is a list of one.
Result<std::vector<std::string>> files_in(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> files;
  if (fs::is_regular_file(directory, error)) return std::vector<std::string>{directory};
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") files.push_back(it->path().string());
  }
  if (error) {
    return base::fail(base::ErrorKind::kUnreadable, fmt::format("{} cannot be listed: {}", directory, error.message()));
  }
  if (files.empty()) {
    return base::fail(base::ErrorKind::kUnreadable, fmt::format("{} has no *.safetensors file", directory));
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string label(const kernels::KernelInfo& kernel) { return fmt::format("{}:{}", kernel.name, kernel.variant); }

/// The kernels that were asked for, on one device.
Result<std::vector<const kernels::KernelInfo*>> chosen(const VerifyOptions& options, const plan::Candidate& candidate) {
  std::vector<const kernels::KernelInfo*> kernels;
  for (const kernels::KernelInfo* kernel : candidate.kernels) {
    const bool wanted = std::any_of(options.kernels.begin(), options.kernels.end(),
                                    [&](const KernelChoice& choice) { return plan::matches(*kernel, choice); });
    const bool unnamed = options.kernels.empty() && runs_unnamed(candidate.facts.kind, kernel->name);
    if (wanted || unnamed) kernels.push_back(kernel);
  }
  if (!kernels.empty()) return kernels;
  return base::fail(base::ErrorKind::kUsage,
                    fmt::format("--kernels: {} has none of them; see attnbench list kernels", candidate.facts.id));
}

/// Both passes on the golden inputs, as a sweep would launch them.
Result<measure::Verdict> run_one(const measure::Golden& golden, Dtype dtype, const kernels::KernelInfo& kernel,
                                 kernels::Device& device) {
  kernels::Problem problem = golden.problem;
  problem.dtype = dtype;
  constexpr auto kPass = kernels::Pass::kFwdBwd;
  const measure::Inputs inputs = measure::golden_inputs(golden, dtype);
  auto workload = measure::Workload::make(kernel, problem, kPass, false, inputs, device);
  if (!workload) return tl::unexpected(workload.error());
  if (auto ok = (*workload)->first_launch(); !ok) return tl::unexpected(ok.error());
  const auto outputs = (*workload)->download();
  if (!outputs) return tl::unexpected(outputs.error());
  return measure::compare(problem, kPass, golden.reference, *outputs,
                          measure::widen_for_logits(kernel.tolerance(problem), golden.reference));
}

/// What is for people; on standard error where a writer has standard output.
void print(const VerifyOptions& options, const std::string& line) {
  if (!options.outputs.quiet) fmt::print(options.outputs.owns_stdout() ? stderr : stdout, "{}\n", line);
}

/// rows.jsonl when --out was given, and the reports that were asked for.
Result<void> write_rows(const VerifyOptions& options, const reports::Document& document) {
  if (!options.outputs.out_dir.empty()) {
    if (auto ok = run::prepare_directory(options.outputs.out_dir, reports::kRowsFile, false); !ok) return ok;
    const auto sink =
        run::file_sink((fs::path(options.outputs.out_dir) / reports::kRowsFile).string(), &reports::to_json_line);
    if (!sink) return tl::unexpected(sink.error());
    for (const reports::Row& row : document.rows) {
      if (auto ok = (*sink)->row(row); !ok) return ok;
    }
  }
  return write_reports(options.outputs, document, kBaseline);
}

/// The row of one file, kernel and dtype: no times, the error of the worst tensor.
reports::Row row_of(const measure::Golden& golden, Dtype dtype, const kernels::KernelInfo& kernel,
                    const kernels::Device& device, const std::string& file, const Result<measure::Verdict>& verdict,
                    const run::Provenance& provenance) {
  plan::Case c;
  c.problem = golden.problem;
  c.problem.dtype = dtype;
  c.pass = kernels::Pass::kFwdBwd;
  c.d_model = c.problem.heads * c.problem.head_dim;
  c.kernel = kernel.name;
  c.variant = kernel.variant;
  c.device = device.facts().id;
  c.threads = device.facts().kind == kernels::DeviceKind::kCpu ? device.threads() : 0;
  c.key = fmt::format("verify/{}/{}/{}/{}", file, label(kernel), to_string(dtype), c.device);
  reports::Row row = run::describe(c, device.facts(), &kernel, provenance);
  row.seed.reset();  // nothing was random
  row.cache.clear();
  run::add_note(row, "checked against " + file);
  if (!verdict) {
    const bool declined = verdict.error().kind == base::ErrorKind::kUnsupported;
    run::finish(row, declined ? reports::status::kUnsupported : reports::status::kFailed, verdict.error().message);
    return row;
  }
  run::add_verdict(row, *verdict);
  run::finish(row, verdict->passed() ? reports::status::kOk : reports::status::kIncorrect,
              verdict->passed() ? std::string() : verdict->reason());
  return row;
}

void verify_kernel(const VerifyOptions& options, const measure::Golden& golden, Dtype dtype, const std::string& file,
                   const kernels::KernelInfo& kernel, kernels::Device& device, Tally& tally) {
  const std::string head = fmt::format("  {:<8} {:<18} {:<5}", device.facts().id, label(kernel), to_string(dtype));
  const auto verdict = run_one(golden, dtype, kernel, device);
  tally.document.rows.push_back(row_of(golden, dtype, kernel, device, file, verdict, tally.provenance));
  if (!verdict) {
    const bool declined = verdict.error().kind == base::ErrorKind::kUnsupported;
    ++(declined ? tally.declined : tally.failed);
    print(options, fmt::format("{}  {}: {}", head, declined ? "unsupported" : "FAIL", verdict.error().message));
    return;
  }
  std::string line = head;
  for (const measure::TensorError& tensor : verdict->tensors) {
    line += tensor.wrong ? fmt::format(" {:>8}", "wrong") : fmt::format(" {:>8.1e}", tensor.relative);
  }
  line += fmt::format(" {:>9.1e}  {}", verdict->tensors.front().tolerance, verdict->passed() ? "pass" : "FAIL");
  ++(verdict->passed() ? tally.passed : tally.failed);
  print(options, line);
  for (const measure::TensorError& tensor : verdict->tensors) {
    if (tensor.passed()) continue;
    fmt::print(options.outputs.quiet || options.outputs.owns_stdout() ? stderr : stdout,
               "    {} {} {}: {} (error {:.3g}, allowed {:.3g})\n", label(kernel), to_string(dtype), tensor.tensor,
               tensor.worst, tensor.relative, tensor.tolerance);
  }
}

/// Everything that runs on one file. Error: the file is damaged.
Result<void> verify_file(const VerifyOptions& options, const std::string& path,
                         const std::vector<std::unique_ptr<kernels::Device>>& devices,
                         const std::vector<std::vector<const kernels::KernelInfo*>>& kernels, Tally& tally) {
  const auto file = measure::SafeTensors::load(path);
  if (!file) return tl::unexpected(file.error());
  const std::string kind = measure::golden_kind(*file);
  if (kind != "attention") {
    const std::string what = kind.empty() ? "no attention problem (tensors q, k, v are not there)"
                                          : "a training run, not an attention problem";
    print(options, fmt::format("{}: skipped: {}", fs::path(path).filename().string(), what));
    return {};
  }
  const std::string name = fs::path(path).filename().string();
  const auto golden = measure::read_golden(*file);
  if (!golden) return tl::unexpected(golden.error());
  print(options, name);
  const std::vector<Dtype> dtypes = options.dtype.value_or(verify_dtypes());
  for (std::size_t d = 0; d < devices.size(); ++d) {
    for (const kernels::KernelInfo* kernel : kernels[d]) {
      for (const Dtype dtype : dtypes) {
        if (run::interrupted()) return {};
        verify_kernel(options, *golden, dtype, name, *kernel, *devices[d], tally);
      }
    }
  }
  return {};
}

}  // namespace

int verify_verb(const VerifyOptions& options) {
  const auto files = files_in(options.directory);
  if (!files) return complain(files.error());
  const auto candidates = find_candidates(options.devices);
  if (!candidates) return complain(candidates.error());
  std::vector<std::unique_ptr<kernels::Device>> devices;
  std::vector<std::vector<const kernels::KernelInfo*>> kernels;
  for (const plan::Candidate& candidate : *candidates) {
    auto names = chosen(options, candidate);
    if (!names) return complain(names.error());
    auto device = open_device(candidate.facts.id);
    if (!device) return complain(device.error());
    kernels.push_back(std::move(*names));
    devices.push_back(std::move(*device));
  }
  print(options, fmt::format("  {:<8} {:<18} {:<5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}", "device", "kernel", "dtype",
                             "o", "lse", "dq", "dk", "dv", "allowed"));
  Tally tally;
  tally.provenance = {run::utc_now(), options.command, 0, run::host_facts()};
  std::optional<base::Error> damaged;
  const run::InterruptGuard guard;
  for (const std::string& path : *files) {
    if (run::interrupted()) break;
    if (auto ok = verify_file(options, path, devices, kernels, tally); !ok) {
      fmt::print(stderr, "error: {}\n", ok.error().message);
      if (!damaged) damaged = ok.error();
    }
  }
  fmt::print(options.outputs.owns_stdout() ? stderr : stdout,
             "{} passed, {} failed, {} unsupported. Errors are relative to the largest magnitude of a tensor, absolute "
             "where that is under 1; allowed is the kernel's tolerance, or sqrt(D) 2^-24 times the largest sum of "
             "|q k| scale where that is more (rounding of large logits).\n",
             tally.passed, tally.failed, tally.declined);
  if (auto ok = write_rows(options, tally.document); !ok) return complain(ok.error());
  if (run::interrupted()) {
    fmt::print(stderr, "interrupted: what was checked so far is counted above{}\n",
               options.outputs.out_dir.empty() ? "" : fmt::format(" and kept in {}", options.outputs.out_dir));
    return run::interrupt_exit_code();
  }
  if (damaged) return base::exit_code_of(damaged->kind);
  return tally.failed > 0 ? base::exit_code::kRowFailed : base::exit_code::kOk;
}

}  // namespace attnbench::cli
