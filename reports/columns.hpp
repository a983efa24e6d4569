// The list of columns: what every format prints, in this order, under these names. One line per column in columns.cpp.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "reports/row.hpp"

namespace attnbench::reports {

/// One column. `name` is the CSV header, the JSON key and the name of the field of Row.
struct Column {
  std::string_view name;
  std::string_view unit;  // us, bytes, %, ...; empty for words and plain counts
  std::string_view doc;   // one sentence: what it says, by which convention, from which source
  std::variant<Text Row::*, Number Row::*, Integer Row::*> field;
  std::string_view detail = {};  // the long convention, where one sentence is not enough
};

/// Every field of Row except sample_times_us, in a fixed order.
std::span<const Column> columns();

/// The column of that name, or null.
const Column* find_column(std::string_view name);

/// Index in columns(); needs column to point into it.
std::size_t index_of(const Column& column);

/// True when the row has no value for the column.
bool is_absent(const Row& row, const Column& column);

/// The value as one plain word: integers without exponent, doubles in the shortest form that reads back to the same
/// bits, texts as they are, empty when absent. Independent of the locale.
std::string plain_text(const Row& row, const Column& column);

/// Shortest text that reads back to the same double: fixed notation from 1e-6 up to 1e15, else with an exponent.
std::string number_text(double value);

}  // namespace attnbench::reports
