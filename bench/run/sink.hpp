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

/// Appends each row to the file and waits until it is on disk.
///
/// Errors  kFailed with the path and the system's reason (a full disk among them)
base::Result<std::unique_ptr<RowSink>> file_sink(const std::string& path, Serializer serialize);

/// Cuts a last line that has no newline, left by a run that was killed while it wrote. Returns the bytes cut.
///
/// Errors  kUnreadable: the file cannot be read or cut
base::Result<std::size_t> cut_torn_line(const std::string& path);

/// attnbench-out/<UTC time>, e.g. attnbench-out/20250131T120000Z; with -2, -3 ... where that is taken.
std::string default_directory();

/// Makes a new directory (and its parents) for the rows of a run; with `resume` an existing one is what is wanted.
///
/// Errors  kUsage: it exists and is not to be resumed, or is to be and has no `rows_file`. kFailed: cannot be made
base::Result<void> prepare_directory(const std::string& directory, const std::string& rows_file, bool resume);

}  // namespace attnbench::run
