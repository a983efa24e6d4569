// Rows to JSON lines and back: lines, documents, files. rows_handler makes the rows.
#include "reports/rows_io.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "reports/columns.hpp"
#include "reports/rows_handler.hpp"

namespace attnbench::reports {

namespace {

using Json = nlohmann::json;
using base::ErrorKind;

std::string value_text(const Row& row, const Column& column) {
  return std::holds_alternative<Text Row::*>(column.field) ? json_quote(plain_text(row, column))
                                                           : plain_text(row, column);
}

/// Input iterator that knows the line of the last character handed out.
class LineIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineIterator(const char* at, std::size_t* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineIterator& operator++() {
    // Counted one step late: a parser has read the newline behind a number when it reports the number.
    if (newline_) ++*line_;
    newline_ = *at_++ == '\n';
    return *this;
  }
  LineIterator operator++(int) {
    LineIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const LineIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  std::size_t* line_;
  bool newline_ = false;
};

tl::unexpected<base::Error> damaged(const std::string& source, std::size_t line, std::string_view fault) {
  return base::fail(ErrorKind::kUnreadable,
                    fmt::format("{}: line {}: {}; give a directory that `attnbench sweep --out` wrote, its {}, or a "
                                "file that --json wrote",
                                source, line, fault, kRowsFile));
}

/// Collects rows, the latest of equal keys in the place of the first.
class Collector {
 public:
  explicit Collector(Document& document) : document_(document) {}

  void take(RowHandler& handler) {
    for (Row& row : handler.rows) add(std::move(row));
    handler.rows.clear();
    for (const auto& [name, line] : handler.unknown_keys) {
      if (unknown_.size() < kUnknownKeysMax) unknown_.emplace(name, line);
    }
  }

  void finish() {
    for (const auto& [name, line] : unknown_) {
      document_.warnings.push_back(
          fmt::format("{}: line {}: no column is called \"{}\"; it is passed over", document_.source, line, name));
    }
  }

 private:
  void add(Row row) {
    if (!row.key.empty()) {
      const auto [place, is_new] = by_key_.emplace(row.key, document_.rows.size());
      if (!is_new) {
        document_.rows[place->second] = std::move(row);
        return;
      }
    }
    document_.rows.push_back(std::move(row));
  }

  Document& document_;
  std::unordered_map<std::string, std::size_t> by_key_;
  std::map<std::string, std::size_t, std::less<>> unknown_;
};

bool is_json_document(std::string_view bytes) {
  const std::size_t no_line = 1;
  RowHandler probe(no_line, true);
  Json::sax_parse(bytes.begin(), bytes.end(), &probe, Json::input_format_t::json, false);
  return probe.is_document;
}

base::Result<Document> parse_json_document(std::string_view bytes, const std::string& source) {
  std::size_t line = 1;
  RowHandler handler(line, false);
  const LineIterator first(bytes.data(), &line), last(bytes.data() + bytes.size(), &line);
  if (!Json::sax_parse(first, last, &handler)) return damaged(source, handler.error_line, handler.error);
  Document document{source, {}, {}};
  Collector collector(document);
  collector.take(handler);
  collector.finish();
  if (document.rows.empty()) return damaged(source, line, "the document holds no row");
  return document;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

base::Result<Document> parse_lines(std::string_view bytes, const std::string& source) {
  Document document{source, {}, {}};
  Collector collector(document);
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < bytes.size();) {
    ++line_number;
    const std::size_t newline = bytes.find('\n', begin);
    const bool is_finished = newline != std::string_view::npos;
    const std::string_view line = bytes.substr(begin, is_finished ? newline - begin : newline);
    begin = is_finished ? newline + 1 : bytes.size();
    if (is_blank(line)) continue;
    if (!is_finished && is_torn(line)) {
      if (document.rows.empty())
        return damaged(source, line_number, "the line ends too early, and there is no whole row");
      document.warnings.push_back(
          fmt::format("{}: line {}: the last line is torn (the run was stopped while writing it); it is left out",
                      source, line_number));
      continue;
    }
    if (line.find('\0') != std::string_view::npos) return damaged(source, line_number, "there is a NUL byte");
    RowHandler handler(line_number, false);
    if (!Json::sax_parse(line.begin(), line.end(), &handler)) return damaged(source, line_number, handler.error);
    if (handler.is_document) return damaged(source, line_number, "a document among rows");
    collector.take(handler);
  }
  if (document.rows.empty()) return damaged(source, 1, "there is no row");
  collector.finish();
  return document;
}

/// Bytes of a regular file or a pipe.
base::Result<std::string> read_file(const std::string& path) {
  const auto cannot = [&path] {
    return base::fail(ErrorKind::kUnreadable, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return cannot();
  struct stat facts {};
  if (fstat(fileno(file.get()), &facts) != 0) return cannot();
  if (!S_ISREG(facts.st_mode) && !S_ISFIFO(facts.st_mode)) {
    return base::fail(ErrorKind::kUnreadable, fmt::format("cannot read {}: not a file of rows", path));
  }
  std::string bytes;
  constexpr std::size_t kChunk = 1 << 20;
  for (std::size_t got = kChunk; got == kChunk;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kChunk);
    got = std::fread(bytes.data() + before, 1, kChunk, file.get());
    bytes.resize(before + got);
  }
  if (std::ferror(file.get()) != 0) return cannot();
  return bytes;
}

}  // namespace

std::string json_quote(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_json_line(const Row& row) {
  std::string line = "{";
  for (const Column& column : columns()) {
    if (is_absent(row, column)) continue;
    if (line.size() > 1) line += ',';
    fmt::format_to(std::back_inserter(line), "\"{}\":{}", column.name, value_text(row, column));
  }
  if (!row.sample_times_us.empty()) {
    fmt::format_to(std::back_inserter(line), "{}\"{}\":[", line.size() > 1 ? "," : "", kSamplesKey);
    const char* separator = "";
    for (const double time : row.sample_times_us) {
      const std::string number = number_text(time);
      if (number.empty()) continue;
      line.append(separator).append(number);
      separator = ",";
    }
    line += ']';
  }
  return line += '}';
}

std::string to_json_object(const Row& row) {
  std::string line = "{";
  for (const Column& column : columns()) {
    if (line.size() > 1) line += ',';
    fmt::format_to(std::back_inserter(line), "\"{}\":{}", column.name,
                   is_absent(row, column) ? "null" : value_text(row, column));
  }
  return line += '}';
}

bool is_torn(std::string_view unfinished_line) {
  const std::string_view line = unfinished_line.substr(0, unfinished_line.find_last_not_of('\0') + 1);
  if (is_blank(line)) return line.size() < unfinished_line.size();
  if (line.find('\0') != std::string_view::npos) return false;
  const std::size_t line_number = 1;
  RowHandler handler(line_number, false);
  return !Json::sax_parse(line.begin(), line.end(), &handler) && handler.syntax_position > line.size();
}

base::Result<Row> from_json_line(std::string_view line) {
  const std::size_t line_number = 1;
  RowHandler handler(line_number, false);
  const bool has_nul = line.find('\0') != std::string_view::npos;
  const bool read = !has_nul && Json::sax_parse(line.begin(), line.end(), &handler) && handler.rows.size() == 1;
  if (read) return std::move(handler.rows.front());
  return base::fail(ErrorKind::kUnreadable,
                    handler.error.empty() ? (has_nul ? "there is a NUL byte" : "this is not a row") : handler.error);
}

base::Result<Document> parse_rows(std::string_view bytes, const std::string& source) {
  return is_json_document(bytes) ? parse_json_document(bytes, source) : parse_lines(bytes, source);
}

base::Result<Document> load_rows(const std::string& dir_or_file) {
  struct stat facts {};
  const bool is_directory = stat(dir_or_file.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
  const std::string path = is_directory ? dir_or_file + "/" + kRowsFile : dir_or_file;
  const base::Result<std::string> bytes = read_file(path);
  if (!bytes) return tl::unexpected(bytes.error());
  return parse_rows(*bytes, path);
}

}  // namespace attnbench::reports
