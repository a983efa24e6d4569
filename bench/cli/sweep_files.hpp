// The folder of a sweep: made, or taken up again where an earlier sweep left it.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>

#include "bench/base/error.hpp"
#include "bench/cli/options.hpp"
#include "bench/plan/plan.hpp"
#include "bench/run/host.hpp"
#include "bench/run/sink.hpp"
#include "reports/row.hpp"

namespace attnbench::cli {

/// Where rows go, and what is there already.
struct SweepFolder {
  std::string directory;
  std::string rows_path;
  std::unique_ptr<run::RowSink> sink;  // of rows.jsonl, locked while it lives
  reports::Document earlier;           // rows of the sweep that is resumed
  std::set<std::string> finished;      // keys that need no further run
};

/// A new folder, or with --resume an existing one: its torn last line is cut, its rows are read, and those whose status
/// another run would not change count as finished; oom_predicted does not when --try-oom is given.
///
/// Errors  kUsage: exists without --resume, nothing to resume, another run is at work in it, or the rows come from
///         another machine (their fingerprint differs), another seed or another rule of sampling. kUnreadable: the rows
///         are damaged. kFailed: the folder cannot be made
base::Result<SweepFolder> open_folder(const SweepOptions& options, std::span<const plan::Candidate> candidates,
                                      const run::HostFacts& host);

}  // namespace attnbench::cli
