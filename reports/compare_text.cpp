// A comparison as text.
#include "reports/compare_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reports/format.hpp"
#include "reports/markdown.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::reports {
namespace {

constexpr std::array kVerdicts = {Verdict::kRegressed,    Verdict::kImproved, Verdict::kSame,
                                  Verdict::kInconclusive, Verdict::kAdded,    Verdict::kRemoved,
                                  Verdict::kNotComparable};

std::string metric_value(const Change& change, const Number& value) {
  if (!value) return "n/a";
  const std::string_view unit = change.gate.metric->unit;
  if (unit == "us") return time_text(*value);
  if (unit == "bytes") return bytes_text(*value);
  if (unit == "TFLOP/s") return rate_text(*value);
  if (unit == "GB/s") return gbps_text(*value);
  return digits_text(*value);
}

std::string percent(const Number& value) { return value ? fmt::format("{:+.1f} %", *value) : "n/a"; }

std::string interval(const Change& change) {
  if (!change.shift_low_pct || !change.shift_high_pct) return "n/a";
  return fmt::format("{:+.1f} to {:+.1f} %", *change.shift_low_pct, *change.shift_high_pct);
}

std::string p_text(const Number& p) { return !p ? "n/a" : *p < 0.001 ? "< 0.001" : fmt::format("{:.3f}", *p); }

std::string threshold(const Change& change) {
  return fmt::format("{}{:.1f} %", change.gate.more_is_worse ? "+" : "-",
                     std::max(change.gate.limit_pct, change.floor_pct));
}

struct Field {
  const char* title;
  bool numeric;
  std::string (*text)(const Change& change);
};

constexpr std::array<Field, 9> kFields = {{
    {"verdict", false, [](const Change& c) { return std::string(to_string(c.verdict)); }},
    {"metric", false, [](const Change& c) { return std::string(c.gate.metric->name); }},
    {"base", true, [](const Change& c) { return metric_value(c, c.base_value); }},
    {"new", true, [](const Change& c) { return metric_value(c, c.next_value); }},
    {"change", true, [](const Change& c) { return percent(c.change_pct); }},
    {"interval", true, interval},
    {"p", true, [](const Change& c) { return p_text(c.p_corrected); }},
    {"gate", true, threshold},
    {"row", false, [](const Change& c) { return c.reason.empty() ? c.key : c.key + " (" + c.reason + ")"; }},
}};

const char* color_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kRegressed:
      return "\x1b[31m";
    case Verdict::kImproved:
      return "\x1b[32m";
    case Verdict::kSame:
      return "";
    default:
      return "\x1b[33m";
  }
}

std::string json_number(const Number& value) {
  const std::string text = value ? number_text(*value) : "";
  return text.empty() ? "null" : text;
}

std::string json_change(const Change& change) {
  return fmt::format(
      R"({{"key":{},"metric":{},"limit_pct":{},"more_is_worse":{},"verdict":{},"base":{},"new":{},"change_pct":{},)"
      R"("shift_low_pct":{},"shift_high_pct":{},"p":{},"p_corrected":{},"floor_pct":{},"reason":{}}})",
      json_quote(change.key), json_quote(change.gate.metric->name), number_text(change.gate.limit_pct),
      change.gate.more_is_worse, json_quote(to_string(change.verdict)), json_number(change.base_value),
      json_number(change.next_value), json_number(change.change_pct), json_number(change.shift_low_pct),
      json_number(change.shift_high_pct), json_number(change.p), json_number(change.p_corrected),
      number_text(change.floor_pct), change.reason.empty() ? "null" : json_quote(change.reason));
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char letter : text) quoted.append(letter == '"' ? "\"\"" : std::string(1, letter));
  return quoted += '"';
}

std::string plain(const Number& value) { return value ? number_text(*value) : std::string(); }

}  // namespace

std::string difference_sentence(const Difference& difference) {
  const auto shown = [](const std::string& text) { return text.empty() ? std::string("unknown") : text; };
  return fmt::format("{} differs: {} before, {} now", difference.column->name, shown(difference.base),
                     shown(difference.next));
}

std::string counts_sentence(const Comparison& comparison) {
  std::string sentence;
  for (const Verdict verdict : kVerdicts) {
    const auto found = comparison.counts.find(verdict);
    if (found == comparison.counts.end()) continue;
    sentence += fmt::format("{}{} {}", sentence.empty() ? "" : ", ", found->second, to_string(verdict));
  }
  return sentence.empty() ? "no rows" : sentence;
}

std::string compare_table(const Comparison& comparison, const TableStyle& style) {
  std::array<std::size_t, kFields.size()> width{};
  std::vector<std::array<std::string, kFields.size()>> lines;
  for (std::size_t i = 0; i < kFields.size(); ++i) width[i] = cell_count(kFields[i].title);
  for (const Change& change : comparison.changes) {
    auto& line = lines.emplace_back();
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      line[i] = one_line(kFields[i].text(change));
      width[i] = std::max(width[i], cell_count(line[i]));
    }
  }
  const auto put = [&width](const auto& cells) {
    std::string text;
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      const std::string padded =
          kFields[i].numeric ? padded_left(cells[i], width[i]) : padded_right(cells[i], width[i]);
      text += (i == 0 ? "" : "  ") + padded;
    }
    return text.erase(text.find_last_not_of(' ') + 1);
  };
  std::string text;
  for (const Difference& difference : comparison.differences) {
    text += fmt::format("{}: {}\n", difference.allowed ? "note" : "not comparable", difference_sentence(difference));
  }
  std::array<std::string, kFields.size()> titles;
  for (std::size_t i = 0; i < kFields.size(); ++i) titles[i] = kFields[i].title;
  text += put(titles) + "\n";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const char* color = style.color ? color_of(comparison.changes[i].verdict) : "";
    text += color + put(lines[i]) + (*color != '\0' ? "\x1b[0m" : "") + "\n";
  }
  return text + counts_sentence(comparison) + "\n";
}

std::string compare_markdown(const Comparison& comparison, std::size_t most_rows) {
  std::string text = fmt::format("## {}\n\n", markdown::cell(counts_sentence(comparison)));
  text += fmt::format("Base {}, new {}.\n\n", markdown::cell(comparison.base_commit),
                      markdown::cell(comparison.next_commit));
  for (const Difference& difference : comparison.differences) {
    text += fmt::format(
        "- {}{}\n", difference.allowed ? "" : "**not comparable**: ", markdown::cell(difference_sentence(difference)));
  }
  if (!comparison.differences.empty()) text += "\n";
  std::vector<std::string> titles;
  std::vector<bool> numeric;
  for (const Field& field : kFields) {
    titles.emplace_back(field.title);
    numeric.push_back(field.numeric);
  }
  std::size_t left_out = 0;
  std::size_t shown = 0;
  std::string rows;
  for (const Change& change : comparison.changes) {
    if (change.verdict == Verdict::kSame || shown == most_rows) {
      ++left_out;
      continue;
    }
    ++shown;
    std::vector<std::string> cells;
    for (const Field& field : kFields) cells.push_back(markdown::cell(field.text(change)));
    rows += markdown::line_of(cells);
  }
  if (shown > 0) text += markdown::head(titles, numeric) + rows + "\n";
  if (left_out > 0)
    text += fmt::format("{} rows without a change, or beyond the first {}, are not shown.\n", left_out, most_rows);
  return text;
}

std::string compare_json(const Comparison& comparison) {
  std::string text =
      fmt::format(R"({{"schema_version":1,"base_commit":{},"new_commit":{},"comparable":{},"differences":[)",
                  json_quote(comparison.base_commit), json_quote(comparison.next_commit), comparison.comparable());
  const char* separator = "\n";
  for (const Difference& difference : comparison.differences) {
    text += fmt::format(R"({}{{"column":{},"base":{},"new":{},"allowed":{}}})", separator,
                        json_quote(difference.column->name), json_quote(difference.base), json_quote(difference.next),
                        difference.allowed);
    separator = ",\n";
  }
  text += "],\n\"counts\":{";
  separator = "";
  for (const auto& [verdict, count] : comparison.counts) {
    text += fmt::format("{}{}:{}", separator, json_quote(to_string(verdict)), count);
    separator = ",";
  }
  text += "},\n\"changes\":[";
  separator = "\n";
  for (const Change& change : comparison.changes) {
    text += separator + json_change(change);
    separator = ",\n";
  }
  return text + "]}\n";
}

std::string compare_csv(const Comparison& comparison) {
  std::string csv =
      "key,metric,verdict,base,new,change_pct,shift_low_pct,shift_high_pct,p,p_corrected,limit_pct,floor_pct,"
      "reason\r\n";
  for (const Change& change : comparison.changes) {
    csv += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}\r\n", csv_field(change.key), change.gate.metric->name,
                       to_string(change.verdict), plain(change.base_value), plain(change.next_value),
                       plain(change.change_pct), plain(change.shift_low_pct), plain(change.shift_high_pct),
                       plain(change.p), plain(change.p_corrected), number_text(change.gate.limit_pct),
                       number_text(change.floor_pct), csv_field(change.reason));
  }
  return csv;
}

}  // namespace attnbench::reports
