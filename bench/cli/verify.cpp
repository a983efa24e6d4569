// `attnbench verify DIR`: every kernel against inputs and outputs that another implementation computed.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/cli/devices.hpp"
#include "bench/cli/print.hpp"
#include "bench/cli/sweep_output.hpp"
#include "bench/cli/verbs.hpp"
#include "bench/measure/golden.hpp"
#include "bench/measure/workload.hpp"
#include "bench/plan/select.hpp"
#include "bench/run/interrupt.hpp"
#include "bench/run/provenance.hpp"
#include "bench/run/sink.hpp"
#include "kernels/catalog.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::cli {
namespace {

using base::Result;
using kernels::Dtype;
namespace fs = std::filesystem;

int complain(const base::Error& error) {
  print_to(stderr, "error: {}\n", error.message);
  return base::exit_code_of(error.kind);
}

/// Outcomes so far, as counts and as rows; `file` is where rows go as they come.
struct Tally {
  int files = 0;  // that hold an attention problem
  int passed = 0;
  int failed = 0;
  int declined = 0;
  std::unique_ptr<run::RowSink> file;
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

/// What kernels are held against: the problem of one file, its tensors, and the largest |lse| by our own oracle, which
/// bounds are derived from: those of the file are what is in question.
struct Subject {
  std::string file;
  measure::Golden golden;
  double lse = 0;
};

/// Those of the kernels that were asked for which one device has.
std::vector<const kernels::KernelInfo*> chosen(const VerifyOptions& options, const plan::Candidate& candidate) {
  std::vector<const kernels::KernelInfo*> kernels;
  for (const kernels::KernelInfo* kernel : candidate.kernels) {
    const bool wanted = std::any_of(options.kernels.begin(), options.kernels.end(),
                                    [&](const KernelChoice& choice) { return plan::matches(*kernel, choice); });
    const bool unnamed = options.kernels.empty() && runs_unnamed(candidate.facts.kind, kernel->name);
    if (wanted || unnamed) kernels.push_back(kernel);
  }
  return kernels;
}

/// Both passes on the golden inputs, as a sweep would launch them.
Result<measure::Verdict> run_one(const Subject& subject, Dtype dtype, const kernels::KernelInfo& kernel,
                                 kernels::Device& device) {
  const measure::Golden& golden = subject.golden;
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
                          measure::bounds_for(kernel.tolerance(problem), subject.lse));
}

/// What is for people; on standard error where a writer has standard output.
void print(const VerifyOptions& options, const std::string& line) {
  if (!options.outputs.quiet) print_to(options.outputs.owns_stdout() ? stderr : stdout, "{}\n", line);
}

/// Keeps a row; in rows.jsonl too when --out was given.
Result<void> add_row(const VerifyOptions& options, reports::Row row, Tally& tally) {
  if (!tally.file && !options.outputs.out_dir.empty()) {
    auto sink =
        run::file_sink((fs::path(options.outputs.out_dir) / reports::kRowsFile).string(), &reports::to_json_line);
    if (!sink) return tl::unexpected(sink.error());
    tally.file = std::move(*sink);
  }
  tally.document.rows.push_back(std::move(row));
  return tally.file ? tally.file->row(tally.document.rows.back()) : Result<void>{};
}

/// The row of one file, kernel and dtype: no times, the error of the worst tensor.
reports::Row row_of(const Subject& subject, Dtype dtype, const kernels::KernelInfo& kernel,
                    const kernels::Device& device, const Result<measure::Verdict>& verdict,
                    const run::Provenance& provenance) {
  plan::Case c;
  c.problem = subject.golden.problem;
  c.problem.dtype = dtype;
  c.pass = kernels::Pass::kFwdBwd;
  c.d_model = c.problem.heads * c.problem.head_dim;
  c.kernel = kernel.name;
  c.variant = kernel.variant;
  c.device = device.facts().id;
  c.threads = device.facts().kind == kernels::DeviceKind::kCpu ? device.threads() : 0;
  c.key = fmt::format("verify/{}/{}/{}/{}", subject.file, label(kernel), to_string(dtype), c.device);
  reports::Row row = run::describe(c, device.facts(), &kernel, provenance);
  row.seed.reset();  // nothing was random
  row.cache.clear();
  run::add_note(row, "checked against " + subject.file);
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

/// Error: the row cannot be written.
Result<void> verify_kernel(const VerifyOptions& options, const Subject& subject, Dtype dtype,
                           const kernels::KernelInfo& kernel, kernels::Device& device, Tally& tally) {
  const std::string head = fmt::format("  {:<8} {:<18} {:<5}", device.facts().id, label(kernel), to_string(dtype));
  const auto verdict = run_one(subject, dtype, kernel, device);
  auto kept = add_row(options, row_of(subject, dtype, kernel, device, verdict, tally.provenance), tally);
  if (!verdict) {
    const bool declined = verdict.error().kind == base::ErrorKind::kUnsupported;
    ++(declined ? tally.declined : tally.failed);
    print(options, fmt::format("{}  {}: {}", head, declined ? "unsupported" : "FAIL", verdict.error().message));
    return kept;
  }
  std::string line = head;
  for (const measure::TensorError& tensor : verdict->tensors) {
    line += tensor.relative ? fmt::format(" {:>8.1e}", *tensor.relative) : fmt::format(" {:>8}", "wrong");
  }
  line += fmt::format(" {:>9.1e}  {}", verdict->tensors.front().tolerance, verdict->passed() ? "pass" : "FAIL");
  ++(verdict->passed() ? tally.passed : tally.failed);
  print(options, line);
  for (const measure::TensorError& tensor : verdict->tensors) {
    if (tensor.passed()) continue;
    print_to(options.outputs.quiet || options.outputs.owns_stdout() ? stderr : stdout, "    {} {} {}: {}\n",
             label(kernel), to_string(dtype), tensor.tensor, tensor.reason());
  }
  return kept;
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
  auto golden = measure::read_golden(*file);
  if (!golden) return tl::unexpected(golden.error());
  ++tally.files;
  Subject subject{fs::path(path).filename().string(), std::move(*golden)};
  kernels::ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  subject.lse = measure::largest_lse(measure::make_reference(
      subject.golden.problem, kernels::Pass::kFwd, measure::golden_inputs(subject.golden, Dtype::kFp32), 1, pool));
  print(options, subject.file);
  const std::vector<Dtype> dtypes = options.dtype.value_or(verify_dtypes());
  for (std::size_t d = 0; d < devices.size(); ++d) {
    for (const kernels::KernelInfo* kernel : kernels[d]) {
      for (const Dtype dtype : dtypes) {
        if (run::interrupted()) return {};
        if (auto ok = verify_kernel(options, subject, dtype, *kernel, *devices[d], tally); !ok) return ok;
      }
    }
  }
  return {};
}

/// What the counts are, and what they were held to.
std::string totals(const Tally& tally) {
  return fmt::format(
      "{} passed, {} failed, {} unsupported. Errors are relative to the largest magnitude of a tensor, absolute where "
      "that is under 1. allowed is the kernel's tolerance; of o, dq, dk and dv 16 units in the last place (fp32) of "
      "the "
      "largest |lse| that the oracle finds on these inputs where that is more, up to {:g} (rounding of large logits).",
      tally.passed, tally.failed, tally.declined, measure::kMostForLogits);
}

/// What a run that checked something ends with. Error: nothing was compared.
Result<int> outcome(const VerifyOptions& options, const Tally& tally) {
  if (tally.failed > 0) return base::exit_code::kRowFailed;
  if (tally.passed > 0) return base::exit_code::kOk;
  if (tally.files == 0) {
    return base::fail(
        base::ErrorKind::kUnreadable,
        fmt::format("nothing was checked: no file of {} is an attention problem (tensors q, k, v)", options.directory));
  }
  return base::fail(base::ErrorKind::kUsage,
                    "nothing was checked: every kernel declines these problems, as said above; try other --kernels or "
                    "--device");
}

/// Takes back a folder for which there were no rows.
void remove_if_empty(const VerifyOptions& options, const Tally& tally) {
  std::error_code ignored;
  if (!options.outputs.out_dir.empty() && !tally.file) fs::remove(options.outputs.out_dir, ignored);
}

}  // namespace

int verify_verb(const VerifyOptions& options) {
  const auto files = files_in(options.directory);
  if (!files) return complain(files.error());
  const auto candidates = find_candidates(options.devices);
  if (!candidates) return complain(candidates.error());
  if (auto ok = plan::check_choices(options.kernels, *candidates); !ok) return complain(ok.error());
  if (auto ok = check_writable(options.outputs); !ok) return complain(ok.error());
  if (!options.outputs.out_dir.empty()) {
    auto ok = run::prepare_directory(options.outputs.out_dir, reports::kRowsFile, run::Resume::kNever);
    if (!ok) return complain(ok.error());
  }
  std::vector<std::unique_ptr<kernels::Device>> devices;
  std::vector<std::vector<const kernels::KernelInfo*>> kernels;
  for (const plan::Candidate& candidate : *candidates) {
    auto names = chosen(options, candidate);
    if (names.empty()) continue;
    auto device = kernels::open_device(candidate.facts.id);
    if (!device) return complain(device.error());
    kernels.push_back(std::move(names));
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
      print_to(stderr, "error: {}\n", ok.error().message);
      if (!damaged) damaged = ok.error();
    }
  }
  if (!options.outputs.quiet || tally.failed > 0) {
    print_to(options.outputs.quiet || options.outputs.owns_stdout() ? stderr : stdout, "{}\n", totals(tally));
  }
  remove_if_empty(options, tally);
  if (auto ok = write_reports(options.outputs, tally.document, kBaseline); !ok) return complain(ok.error());
  if (run::interrupted()) {
    print_to(stderr, "interrupted: what was checked so far is counted above{}\n",
             options.outputs.out_dir.empty() ? "" : fmt::format(" and kept in {}", options.outputs.out_dir));
    return run::interrupt_exit_code();
  }
  if (damaged) return base::exit_code_of(damaged->kind);
  const auto code = outcome(options, tally);
  return code ? *code : complain(code.error());
}

}  // namespace attnbench::cli
