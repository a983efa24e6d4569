// Makes or resumes the folder of a sweep.
#include "bench/cli/sweep_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bench/run/runner.hpp"
#include "bench/run/sink.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

/// Rows are comparable when each device still is what it was.
Result<void> check_machine(const reports::Document& earlier, std::span<const plan::Candidate> candidates,
                           const run::HostFacts& host) {
  for (const plan::Candidate& candidate : candidates) {
    const std::string now = run::fingerprint(host, candidate.facts);
    for (const reports::Row& row : earlier.rows) {
      if (row.device != candidate.facts.id || row.fingerprint.empty() || row.fingerprint == now) continue;
      return fail(ErrorKind::kUsage,
                  fmt::format("--resume: the rows of {} come from another machine or another set-up of it (fingerprint "
                              "{}, {}; now {}, {}); start a new sweep with another --out",
                              earlier.source, row.fingerprint, row.device_name, now, candidate.facts.name));
    }
  }
  return {};
}

}  // namespace

Result<SweepFolder> open_folder(const SweepOptions& options, std::span<const plan::Candidate> candidates,
                                const run::HostFacts& host) {
  SweepFolder folder;
  if (options.resume && options.outputs.out_dir.empty()) {
    return fail(ErrorKind::kUsage, "--resume needs --out with the folder of the sweep to go on with");
  }
  folder.directory = options.outputs.out_dir.empty() ? run::default_directory() : options.outputs.out_dir;
  folder.rows_path = (std::filesystem::path(folder.directory) / reports::kRowsFile).string();
  if (auto ok = run::prepare_directory(folder.directory, reports::kRowsFile, options.resume); !ok) {
    return tl::unexpected(ok.error());
  }
  if (!options.resume) return folder;

  const auto cut = run::cut_torn_line(folder.rows_path);
  if (!cut) return tl::unexpected(cut.error());
  std::error_code error;
  if (std::filesystem::file_size(folder.rows_path, error) == 0) return folder;
  auto earlier = reports::load_rows(folder.rows_path);
  if (!earlier) return tl::unexpected(earlier.error());
  folder.earlier = std::move(*earlier);
  if (*cut > 0) {
    folder.earlier.warnings.push_back(fmt::format(
        "{}: the last line was torn ({} bytes); it was cut and its point runs again", folder.rows_path, *cut));
  }
  if (auto ok = check_machine(folder.earlier, candidates, host); !ok) return tl::unexpected(ok.error());
  for (const reports::Row& row : folder.earlier.rows) {
    if (options.try_oom && row.status == reports::status::kOomPredicted) continue;
    if (run::is_final(row.status)) folder.finished.insert(row.key);
  }
  return folder;
}

}  // namespace attnbench::cli
