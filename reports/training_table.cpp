// The cells of a training run.
#include "reports/training_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reports/format.hpp"

namespace attnbench::reports {

namespace {

std::string rate(double tflops) {
  std::string text = rate_text(tflops);
  return text.substr(0, text.size() - std::string_view("FLOP/s").size());
}

std::string count_text(double value) {
  if (value >= 1e6) return fmt::format("{} M", digits_text(value * 1e-6));
  return value >= 1e4 ? fmt::format("{} k", digits_text(value * 1e-3)) : digits_text(value);
}

std::string integer(const Integer& value) { return value ? std::to_string(*value) : "n/a"; }

std::string percent(double value) { return fmt::format("{:.0f}%", value); }

/// local, mpi; with * where the link is emulated, + where ranks share processors.
std::string transport(const Row& row) {
  return row.transport + (row.emulated == 1 ? "*" : "") + (row.time_shared == 1 ? "+" : "");
}

constexpr std::array<Cell, 18> kCells = {{
    {"strategy", 13, true, true, 0, [](const Row& row, const TableStyle&) { return row.strategy; }},
    {"ranks", 5, false, true, 0, [](const Row& row, const TableStyle&) { return integer(row.world_size); }},
    {"via", 6, true, true, 8, [](const Row& row, const TableStyle&) { return transport(row); }},
    {"model", 13, true, true, 0, [](const Row& row, const TableStyle&) { return training_shape(row); },
     &TableStyle::model_cells},
    {"dtype", 5, true, true, 3, [](const Row& row, const TableStyle&) { return row.dtype; }},
    {"ahead", 5, false, true, 4, [](const Row& row, const TableStyle&) { return integer(row.prefetch); }},
    {"step", 7, false, false, 0,
     [](const Row& row, const TableStyle&) { return or_absent(row.time_us_median, time_text); }},
    {"tokens/s", 8, false, false, 0,
     [](const Row& row, const TableStyle&) { return or_absent(row.tokens_per_s, count_text); }},
    {"FLOP/s", 6, false, false, 0, [](const Row& row, const TableStyle&) { return or_absent(row.tflops, rate); }},
    {"GEMM%", 5, false, false, 1, [](const Row& row, const TableStyle&) { return or_absent(row.gemm_pct, percent); }},
    {"fwd", 7, false, false, 5, [](const Row& row, const TableStyle&) { return or_absent(row.forward_us, time_text); }},
    {"bwd", 7, false, false, 5,
     [](const Row& row, const TableStyle&) { return or_absent(row.backward_us, time_text); }},
    {"comm", 7, false, false, 6,
     [](const Row& row, const TableStyle&) { return or_absent(row.communication_us, time_text); }},
    {"exposed", 7, false, false, 0,
     [](const Row& row, const TableStyle&) { return or_absent(row.exposed_us, time_text); }},
    {"memory", 8, false, false, 0,
     [](const Row& row, const TableStyle&) { return or_absent(row.peak_bytes, bytes_text); }},
    {"scaling", 7, false, false, 7,
     [](const Row& row, const TableStyle&) { return or_absent(row.scaling_pct, percent); }},
    {"loss", 5, false, false, 2, [](const Row& row, const TableStyle&) { return or_absent(row.loss, digits_text); }},
    {"status", 6, true, false, 0, [](const Row& row, const TableStyle&) { return row.status; }},
}};

bool any(const Document& document, Integer Row::*flag) {
  return std::any_of(document.rows.begin(), document.rows.end(), [flag](const Row& row) { return row.*flag == 1; });
}

}  // namespace

std::span<const Cell> training_cells() { return kCells; }

std::string training_shape(const Row& row) {
  std::string text = row.model;
  if (row.batch && row.seq_len) text += fmt::format(" B{} S{}", *row.batch, *row.seq_len);
  if (row.micro_batches.value_or(1) > 1) text += fmt::format(" x{}", *row.micro_batches);
  if (row.checkpoint == 1) text += " ckpt";
  return text;
}

std::vector<std::string> training_notes(const Document& document) {
  std::vector<std::string> notes{
      "step: of the slowest rank, median; memory: of one rank, equal to the formula; comm: all collectives of a step",
      "exposed: the compute stood still for communication that could have been hidden; the ends of a step are not in "
      "it"};
  if (any(document, &Row::emulated)) {
    notes.emplace_back("via *: the link is emulated, so times are those of --link, not of this machine");
  }
  if (any(document, &Row::time_shared)) {
    notes.emplace_back("via +: more ranks than processors compute in turn, so times say nothing of scaling");
  }
  return notes;
}

}  // namespace attnbench::reports
