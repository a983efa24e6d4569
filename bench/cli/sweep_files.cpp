// Makes or resumes the folder of a sweep.
#include "bench/cli/sweep_files.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "bench/cli/shown.hpp"
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

/// A row that another run would not change: resuming keeps it.
bool stays(const reports::Row& row, const SweepOptions& options) {
  if (options.try_oom && row.status == reports::status::kOomPredicted) return false;
  return run::is_final(row.status);
}

/// "--min-samples 3 --timing auto" as one word and value per option.
std::map<std::string, std::string> options_in(const std::string& text) {
  std::map<std::string, std::string> options;
  std::istringstream words(text);
  for (std::string name, value; words >> name >> value;) options[name] = value;
  return options;
}

/// Rows that stay must have been made as the new ones will be. What tells points apart is in their keys; the rest is
/// the seed and the rule of sampling.
Result<void> check_settings(const reports::Document& earlier, const SweepOptions& options) {
  std::map<std::string, std::string> now = options_in(shown::sampling(options.sampling));
  now["--seed"] = std::to_string(options.seed);
  for (const reports::Row& row : earlier.rows) {
    if (!stays(row, options)) continue;
    std::map<std::string, std::string> then = options_in(row.sampling);
    if (row.seed) then["--seed"] = std::to_string(*row.seed);
    std::string was;
    std::string is;
    for (const auto& [name, value] : then) {
      if (!now.contains(name) || now[name] == value) continue;
      was += fmt::format("{}{} {}", was.empty() ? "" : " ", name, value);
      is += fmt::format("{}{} {}", is.empty() ? "" : " ", name, now[name]);
    }
    if (was.empty()) continue;
    return fail(ErrorKind::kUsage,
                fmt::format("--resume: the rows of {} were made with {}, this run has {}; type {} to "
                            "go on, or start a new sweep with another --out",
                            earlier.source, was, is, was));
  }
  return {};
}

/// Reads what is there and leaves the file ending in a whole line; refuses before anything is changed.
Result<void> take_up(SweepFolder& folder, const SweepOptions& options, std::span<const plan::Candidate> candidates,
                     const run::HostFacts& host) {
  const auto tail = run::read_tail(folder.rows_path);
  if (!tail) return tl::unexpected(tail.error());
  const bool torn = reports::is_torn(tail->text);
  if (tail->begin > 0 || (!tail->text.empty() && !torn)) {
    auto earlier = reports::load_rows(folder.rows_path);
    if (!earlier) return tl::unexpected(earlier.error());
    folder.earlier = std::move(*earlier);
  }
  if (auto ok = check_machine(folder.earlier, candidates, host); !ok) return ok;
  if (auto ok = check_settings(folder.earlier, options); !ok) return ok;
  if (torn) {
    folder.earlier.warnings.push_back(
        fmt::format("{}: the torn line was cut ({} bytes); its point runs again", folder.rows_path, tail->text.size()));
    if (auto ok = run::cut_tail(folder.rows_path, *tail); !ok) return ok;
  } else if (!tail->text.empty()) {
    if (auto ok = run::finish_tail(folder.rows_path); !ok) return ok;
  }
  for (const reports::Row& row : folder.earlier.rows) {
    if (stays(row, options)) folder.finished.insert(row.key);
  }
  return {};
}

}  // namespace

Result<SweepFolder> open_folder(const SweepOptions& options, std::span<const plan::Candidate> candidates,
                                const run::HostFacts& host) {
  SweepFolder folder;
  folder.directory = options.outputs.out_dir;
  if (folder.directory.empty()) {
    auto made = run::make_default_directory();
    if (!made) return tl::unexpected(made.error());
    folder.directory = std::move(*made);
  } else {
    const run::Resume resume = options.resume ? run::Resume::kWanted : run::Resume::kPossible;
    auto ok = run::prepare_directory(folder.directory, reports::kRowsFile, resume);
    if (!ok) return tl::unexpected(ok.error());
  }
  folder.rows_path = (std::filesystem::path(folder.directory) / reports::kRowsFile).string();
  auto sink = run::file_sink(folder.rows_path, &reports::to_json_line);  // from here on no other run can change it
  if (!sink) return tl::unexpected(sink.error());
  folder.sink = std::move(*sink);
  if (!options.resume) return folder;
  if (auto ok = take_up(folder, options, candidates, host); !ok) return tl::unexpected(ok.error());
  return folder;
}

}  // namespace attnbench::cli
