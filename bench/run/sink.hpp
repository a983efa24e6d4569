// Where rows go as they finish: a file that survives whatever happens to the program next.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bench/base/error.hpp"
#include "reports/row.hpp"

namespace attnbench::run {

class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual base::Result<void> row(const reports::Row& row) = 0;
};

/// A row as one line, without the newline.
using Serializer = std::function<std::string(const reports::Row&)>;

/// Appends each row to the file and waits until it is on disk. The file is locked (flock) while the sink lives, so that
/// two runs do not write the same rows twice.
///
/// Errors  kUsage: another run has it locked. kFailed with the path and the system's reason (a full disk among them)
base::Result<std::unique_ptr<RowSink>> file_sink(const std::string& path, Serializer serialize);

/// What stands behind the last newline of a file; no text where every line is finished.
struct Tail {
  std::size_t begin = 0;  // in the file
  std::string text;
};

/// Errors  kUnreadable: the file cannot be read
base::Result<Tail> read_tail(const std::string& path);

/// Takes the tail away, or gives it the newline that it lacks. Errors  kFailed: the file cannot be written
base::Result<void> cut_tail(const std::string& path, const Tail& tail);
base::Result<void> finish_tail(const std::string& path);

/// Makes attnbench-out/<UTC time>, e.g. attnbench-out/20250131T120000Z; with -2, -3 ... where that is taken.
///
/// Errors  kFailed: cannot be made
base::Result<std::string> make_default_directory();

/// Whether a run can go on in the directory of an earlier one, and whether it is to.
enum class Resume : std::uint8_t { kNever, kPossible, kWanted };

/// Makes a new directory (and its parents) for the rows of a run; for Resume::kWanted one with `rows_file` must exist.
///
/// Errors  kUsage: it exists and is not to be resumed, or is to be and has no `rows_file`. kFailed: cannot be made
base::Result<void> prepare_directory(const std::string& directory, const std::string& rows_file, Resume resume);

}  // namespace attnbench::run
