// Takes the events of a JSON parser and makes rows of them; private to rows_io.
#pragma once

#include <bitset>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "reports/columns.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

inline constexpr std::string_view kSamplesKey = "sample_times_us";
/// Unknown keys that warnings name; a foreign file could hold millions.
inline constexpr std::size_t kUnknownKeysMax = 16;

/// One JSON value: a row, or a document with an array `rows` of them.
class RowHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `line` is where the parser stands. With `probe`, parsing stops as soon as the value is known to be a document.
  RowHandler(const std::size_t& line, bool probe) : line_(line), probe_(probe) {}

  std::vector<Row> rows;
  std::map<std::string, std::size_t, std::less<>> unknown_keys;  // with the line of the first use
  bool is_document = false;
  std::string error;  // of the first row that is wrong, or of the syntax
  std::size_t error_line = 0;
  std::size_t syntax_position = 0;  // 1-based, of a syntax error; past the end when the text ended too early

  bool null() override;
  bool boolean(bool truth) override;
  bool number_integer(std::int64_t number) override;
  bool number_unsigned(std::uint64_t number) override;
  bool number_float(double number, const std::string& text) override;
  bool string(std::string& text) override;
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool key(std::string& name) override;
  bool start_object(std::size_t size) override;
  bool end_object() override;
  bool start_array(std::size_t size) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& exception) override;

 private:
  bool begin_row();
  bool end_row();
  template <typename Value>
  bool value(const Value& given);
  template <typename Value>
  void assign(const Value& given);
  template <typename Value>
  void assign_to(Text Row::*field, const Value& given);
  template <typename Value>
  void assign_to(Number Row::*field, const Value& given);
  template <typename Value>
  void assign_to(Integer Row::*field, const Value& given);
  template <typename Value>
  void add_sample(const Value& given);
  void nested();
  /// Remembers the row's first fault; parsing goes on, since the row may turn out to be of a newer schema.
  void note(std::string fault);
  /// Ends the parsing.
  bool stop(std::string fault);

  static constexpr std::size_t kColumnsMax = 256;

  const std::size_t& line_;
  const bool probe_;
  int depth_ = 0;
  int row_depth_ = 1;     // of a row's keys: 1, in a document 3
  bool in_rows_ = false;  // inside the array `rows` of a document
  Row row_;
  std::string row_error_;
  std::size_t row_error_line_ = 0;
  std::size_t row_line_ = 0;
  std::vector<std::string> row_unknown_;
  std::bitset<kColumnsMax> seen_;
  const Column* column_ = nullptr;  // of the current key
  bool samples_ = false;            // the current key is sample_times_us
  bool rows_key_ = false;           // the current key is rows
};

}  // namespace attnbench::reports
