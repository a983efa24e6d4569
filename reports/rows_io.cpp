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

/// Takes rows line by line.
class LineParser {
 public:
  explicit LineParser(const std::string& source) : document_{source, {}, {}} {}

  /// `is_finished`: the line had its newline.
  base::Result<void> take(std::string_view line, bool is_finished) {
    ++line_number_;
    if (is_blank(line)) return {};
    if (!is_finished && is_torn(line)) {
      if (document_.rows.empty()) return damage("the line ends too early, and there is no whole row");
      document_.warnings.push_back(
          fmt::format("{}: line {}: the last line is torn (the run was stopped while writing it); it is left out",
                      document_.source, line_number_));
      return {};
    }
    if (line.find('\0') != std::string_view::npos) return damage("there is a NUL byte");
    RowHandler handler(line_number_, false);
    if (!Json::sax_parse(line.begin(), line.end(), &handler)) return damage(handler.error);
    if (handler.is_document) return damage("a document among rows");
    collector_.take(handler);
    return {};
  }

  base::Result<Document> finish() {
    if (document_.rows.empty()) return damaged(document_.source, 1, "there is no row");
    collector_.finish();
    return std::move(document_);
  }

 private:
  tl::unexpected<base::Error> damage(std::string_view fault) const {
    return damaged(document_.source, line_number_, fault);
  }

  Document document_;
  Collector collector_{document_};
  std::size_t line_number_ = 0;
};

/// Hands over the whole lines of `bytes`, and what is left behind them when it is the last; returns how much it took.
base::Result<std::size_t> take_lines(LineParser& parser, std::string_view bytes, bool is_last) {
  std::size_t begin = 0;
  while (begin < bytes.size()) {
    const std::size_t newline = bytes.find('\n', begin);
    const bool is_finished = newline != std::string_view::npos;
    if (!is_finished && !is_last) break;
    const std::string_view line = bytes.substr(begin, is_finished ? newline - begin : newline);
    if (auto ok = parser.take(line, is_finished); !ok) return tl::unexpected(ok.error());
    begin = is_finished ? newline + 1 : bytes.size();
  }
  return begin;
}

base::Result<Document> parse_lines(std::string_view bytes, const std::string& source) {
  LineParser parser(source);
  if (auto ok = take_lines(parser, bytes, true); !ok) return tl::unexpected(ok.error());
  return parser.finish();
}

/// Whether a file that begins so may hold a document: its first line with something in it ends within a value, or is
/// one. Documents span lines, and rows do not.
bool may_be_document(std::string_view beginning) {
  while (!beginning.empty()) {
    const std::size_t newline = beginning.find('\n');
    const std::string_view line = beginning.substr(0, newline);
    beginning.remove_prefix(newline == std::string_view::npos ? beginning.size() : newline + 1);
    if (is_blank(line)) continue;
    const std::size_t line_number = 1;
    RowHandler handler(line_number, false);
    const bool whole = Json::sax_parse(line.begin(), line.end(), &handler);
    return handler.is_document || (!whole && handler.syntax_position > line.size());
  }
  return true;
}

tl::unexpected<base::Error> cannot_read(const std::string& path, const char* why) {
  return base::fail(ErrorKind::kUnreadable, fmt::format("cannot read {}: {}", path, why));
}

/// Appends up to a chunk; false at the end.
bool read_chunk(std::FILE* file, std::string& bytes) {
  constexpr std::size_t kChunk = 1 << 20;
  const std::size_t before = bytes.size();
  bytes.resize(before + kChunk);
  const std::size_t got = std::fread(bytes.data() + before, 1, kChunk, file);
  bytes.resize(before + got);
  return got == kChunk;
}

/// Rows of a regular file or a pipe. Of lines only a chunk is held beside the rows; of a document all of its bytes.
base::Result<Document> read_rows(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return cannot_read(path, std::strerror(errno));
  struct stat facts {};
  if (fstat(fileno(file.get()), &facts) != 0) return cannot_read(path, std::strerror(errno));
  if (!S_ISREG(facts.st_mode) && !S_ISFIFO(facts.st_mode)) return cannot_read(path, "not a file of rows");
  std::string bytes;
  bool more = read_chunk(file.get(), bytes);
  while (more && bytes.find('\n') == std::string::npos) more = read_chunk(file.get(), bytes);
  if (may_be_document(bytes)) {
    while (more) more = read_chunk(file.get(), bytes);
    if (std::ferror(file.get()) != 0) return cannot_read(path, std::strerror(errno));
    return parse_rows(bytes, path);
  }
  LineParser parser(path);
  while (true) {
    if (std::ferror(file.get()) != 0) return cannot_read(path, std::strerror(errno));
    const auto taken = take_lines(parser, bytes, !more);
    if (!taken) return tl::unexpected(taken.error());
    if (!more) return parser.finish();
    bytes.erase(0, *taken);
    more = read_chunk(file.get(), bytes);
  }
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
  return read_rows(path);
}

}  // namespace attnbench::reports
