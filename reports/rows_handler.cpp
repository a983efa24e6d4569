// Takes the events of a JSON parser and makes rows of them. Nothing is built of what is not a row, so hostile nesting
// costs nothing.
#include "reports/rows_handler.hpp"

#include <fmt/format.h>

#include <utility>

#include "reports/row_check.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::reports {

namespace {

std::string clipped(std::string_view text) {
  return text.size() <= 60 ? std::string(text) : std::string(text.substr(0, 57)) + "...";
}

std::string newer_schema(std::int64_t version) {
  return fmt::format("this has schema version {}, this program reads up to {}; use the attnbench that wrote it",
                     version, kSchemaVersion);
}

}  // namespace

template <typename Value>
void RowHandler::add_sample(const Value& given) {
  if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
    row_.sample_times_us.push_back(static_cast<double>(given));
  } else {
    note(fmt::format("{} must hold numbers", kSamplesKey));
  }
}

template <typename Value>
void RowHandler::assign_to(Text Row::*field, const Value& given) {
  if constexpr (std::is_same_v<Value, std::string>) {
    row_.*field = given;
  } else {
    note(fmt::format("column {} must be a text", column_->name));
  }
}

template <typename Value>
void RowHandler::assign_to(Number Row::*field, const Value& given) {
  if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
    row_.*field = static_cast<double>(given);
  } else {
    note(fmt::format("column {} must be a number", column_->name));
  }
}

template <typename Value>
void RowHandler::assign_to(Integer Row::*field, const Value& given) {
  if constexpr (std::is_same_v<Value, std::int64_t> || std::is_same_v<Value, std::uint64_t>) {
    if (std::in_range<std::int64_t>(given)) {
      row_.*field = static_cast<std::int64_t>(given);
    } else {
      note(fmt::format("column {} must fit 64 bits", column_->name));
    }
  } else {
    note(fmt::format("column {} must be an integer", column_->name));
  }
}

template <typename Value>
void RowHandler::assign([[maybe_unused]] const Value& given) {
  if constexpr (std::is_same_v<Value, std::nullptr_t>) {
    std::visit([this](auto field) { row_.*field = {}; }, column_->field);
  } else {
    std::visit([this, &given](auto field) { assign_to(field, given); }, column_->field);
  }
}

template <typename Value>
bool RowHandler::value(const Value& given) {
  if (depth_ == 0) return stop("a row is a JSON object, this is a single value");
  if (is_document && !in_rows_) return true;
  if (is_document && depth_ == 2) return stop("rows must hold objects, this is a single value");
  if (depth_ == row_depth_) {
    if (samples_ && !std::is_same_v<Value, std::nullptr_t>) note(fmt::format("{} must be an array", kSamplesKey));
    if (column_ != nullptr) assign(given);
  } else if (depth_ == row_depth_ + 1 && samples_) {
    add_sample(given);
  }
  return true;
}

bool RowHandler::null() { return value(nullptr); }
bool RowHandler::boolean(bool truth) { return value(truth); }
bool RowHandler::number_integer(std::int64_t number) { return value(number); }
bool RowHandler::number_unsigned(std::uint64_t number) { return value(number); }
bool RowHandler::number_float(double number, const std::string&) { return value(number); }
bool RowHandler::string(std::string& text) { return value(text); }

bool RowHandler::key(std::string& name) {
  if (depth_ != row_depth_) {
    if (depth_ == 1) in_rows_ = is_document && name == "rows";
    return true;
  }
  rows_key_ = name == "rows";
  column_ = find_column(name);
  samples_ = name == kSamplesKey;
  if (samples_) {
    if (!row_.sample_times_us.empty()) note(fmt::format("{} is given twice", kSamplesKey));
  } else if (column_ == nullptr) {
    if (row_unknown_.size() < kUnknownKeysMax) row_unknown_.push_back(clipped(name));
  } else if (seen_.test(index_of(*column_))) {
    note(fmt::format("column {} is given twice", column_->name));
  } else {
    seen_.set(index_of(*column_));
  }
  return true;
}

bool RowHandler::start_object(std::size_t) {
  ++depth_;
  if (depth_ == row_depth_ && (!is_document || in_rows_)) return begin_row();
  if (depth_ == row_depth_ + 1) nested();
  if (depth_ == row_depth_ + 2 && samples_) note(fmt::format("{} must hold numbers", kSamplesKey));
  return true;
}

bool RowHandler::end_object() {
  --depth_;
  return depth_ + 1 != row_depth_ || (is_document && !in_rows_) || end_row();
}

bool RowHandler::start_array(std::size_t) {
  ++depth_;
  if (depth_ == 1) return stop("a row is a JSON object, this is an array");
  if (is_document && in_rows_ && depth_ == row_depth_) return stop("rows must hold objects, this is an array");
  if (depth_ == row_depth_ + 1) {
    if (rows_key_ && !is_document) {
      if (row_.schema_version > kSchemaVersion) return stop(newer_schema(*row_.schema_version));
      is_document = in_rows_ = true;
      row_depth_ = 3;
      return !probe_;
    }
    if (!samples_) nested();
  }
  if (depth_ == row_depth_ + 2 && samples_) note(fmt::format("{} must hold numbers", kSamplesKey));
  return true;
}

bool RowHandler::end_array() {
  --depth_;
  if (depth_ == 1 && is_document) in_rows_ = false;
  return true;
}

bool RowHandler::parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& exception) {
  constexpr int kNumberOverflow = 406;
  syntax_position = position;
  return stop(exception.id == kNumberOverflow ? "a number is too large for a double" : "this is not JSON");
}

bool RowHandler::begin_row() {
  row_ = Row{};
  row_.schema_version.reset();
  row_error_.clear();
  row_unknown_.clear();
  seen_.reset();
  column_ = nullptr;
  samples_ = rows_key_ = false;
  row_line_ = line_;
  return true;
}

bool RowHandler::end_row() {
  if (row_.schema_version > kSchemaVersion) {
    return stop(newer_schema(*row_.schema_version));
  }
  if (!row_.schema_version || row_.kernel.empty() || row_.status.empty()) {
    const char* missing = !row_.schema_version ? "schema_version" : row_.kernel.empty() ? "kernel" : "status";
    if (row_error_.empty()) return stop(fmt::format("not a row of attnbench: it has no {}", missing));
  }
  if (row_.schema_version && *row_.schema_version < 1)
    note(fmt::format("there is no schema version {}", *row_.schema_version));
  if (!row_error_.empty()) {
    error = row_error_;
    error_line = row_error_line_;
    return false;
  }
  if (std::string fault = fault_of(row_); !fault.empty()) {
    error = std::move(fault);
    error_line = row_line_;
    return false;
  }
  for (const std::string& name : row_unknown_) {
    if (unknown_keys.size() < kUnknownKeysMax) unknown_keys.emplace(name, row_line_);
  }
  rows.push_back(std::move(row_));
  return true;
}

void RowHandler::nested() {
  if (samples_) note(fmt::format("{} must be an array", kSamplesKey));
  if (column_ != nullptr) note(fmt::format("column {} must be a single value", column_->name));
}

void RowHandler::note(std::string fault) {
  if (!row_error_.empty()) return;
  row_error_ = std::move(fault);
  row_error_line_ = line_;
}

bool RowHandler::stop(std::string fault) {
  error = std::move(fault);
  error_line = line_;
  return false;
}

}  // namespace attnbench::reports
