// Rows that tests share.
#include "sample_rows.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "bench/base/rng.hpp"
#include "reports/columns.hpp"

namespace attnbench::reports {

Row refused_row(const std::string& kernel, const std::string& pass, const std::string& status,
                const std::string& reason) {
  Row row;
  row.run_id = "run1";
  row.kernel = kernel;
  row.device = "cpu";
  row.device_name = "Example CPU";
  row.dtype = "fp32";
  row.pass = pass;
  row.causal = 1;
  row.batch = 8;
  row.heads = row.kv_heads = 1;
  row.d_model = row.head_dim = 16;
  row.seq_len = row.seq_len_k = 256;
  row.scale = 0.25;
  row.threads = 2;
  row.cache = "cold";
  row.status = status;
  row.reason = reason;
  row.command = "attnbench sweep";
  row.seed = 1;
  row.key = fmt::format("{}/{}/fp32/causal/b8_h1_kv1_d16_s256_sk256/cold/t2/cpu", kernel, pass);
  return row;
}

Row measured_row(const std::string& kernel, const std::string& pass, double time_us, std::int64_t peak_bytes,
                 std::int64_t d_model, std::int64_t seq_len) {
  Row row = refused_row(kernel, pass, status::kOk, "");
  row.d_model = row.head_dim = d_model;
  row.seq_len = row.seq_len_k = seq_len;
  row.scale = 1 / std::sqrt(static_cast<double>(d_model));
  row.key = fmt::format("{}/{}/d{}_s{}", kernel, pass, d_model, seq_len);
  row.timing = "wall";
  row.stop_reason = "noise";
  row.samples = 20;
  row.time_us_median = time_us;
  row.time_us_ci_low = time_us * 0.98;
  row.time_us_ci_high = time_us * 1.02;
  row.tflops = 0.0567;
  row.gbps = 12.5;
  row.intensity = 4.25;
  row.peak_bytes = peak_bytes;
  row.err_abs_max = 1e-6;
  row.err_rel_max = 2.5e-6;
  row.err_tolerance = 2e-5;
  row.err_tensor = std::string("o");
  return row;
}

Document every_status() {
  Document document{"rows.jsonl", {}, {}};
  std::vector<Row>& rows = document.rows;
  rows.push_back(measured_row("naive", "fwd", 1000, 4 << 20));
  rows.push_back(measured_row("flash", "fwd", 125.5, 1 << 20));
  rows.back().variant = "highway";
  for (Row* row : {&rows[0], &rows[1]}) {
    for (const double share : {0.98, 1.0, 1.5, 0.99, 1.01})
      row->sample_times_us.push_back(*row->time_us_median * share);
  }
  rows.push_back(measured_row("naive", "bwd", 2500, 8 << 20));
  rows.push_back(measured_row("flash", "bwd", 1000.0 / 3, 1 << 20));
  rows.back().variant = "highway";
  rows.back().gbps.reset();
  rows.back().time_us_ci_low.reset();
  rows.push_back(refused_row("blas", "fwd", status::kIncorrect, "dq differs from the oracle, \"badly\""));
  rows.back().err_rel_max = 0.03;
  rows.back().err_tolerance = 2e-5;
  rows.push_back(refused_row("blas", "bwd", status::kUnsupported, "head_dim 512 | at most 256 & a multiple of 8"));
  rows.push_back(refused_row("naive", "fwd_bwd", status::kOom, "the device said:\nno memory"));
  rows.push_back(refused_row("naive", "fwd_bwd", status::kOomPredicted, "needs 144 GiB, 24 GiB are free"));
  rows.back().cache = "hot";
  rows.push_back(refused_row("blas", "fwd_bwd", status::kTimeout, "2 of 3 samples in 3 s — größer, 慢い"));
  rows.push_back(refused_row("flash", "fwd_bwd", status::kFailed, "kernel <flash> returned *error* `7`"));
  rows.push_back(refused_row("flash", "fwd_bwd", status::kDeviceLost, "illegal address"));
  rows.back().cache = "hot";
  rows.push_back(refused_row("blas", "fwd_bwd", status::kInterrupted, ""));
  rows.back().cache = "hot";
  for (Row& row : rows) {
    row.key.append("/").append(row.cache);
    row.command = "attnbench sweep --kernels \"naive,flash\" | tee log && echo";
    row.host = "máquina";
    row.time_utc = "2026-01-02T03:04:05Z";
    row.version = "0.1.0";
    row.compiler = "GCC 12.2";
    row.governor = "performance";
    row.cores = 2;
    row.load_avg = 0.5;
  }
  return document;
}

namespace {

double random_number(std::uint64_t bits) {
  const double value = std::bit_cast<double>(bits);
  if (bits % 3 == 0 && std::isfinite(value) && value != 0) return std::fabs(value);
  if (bits % 3 == 1) return static_cast<double>(bits % 1000000 + 1) / 1000.0;
  return static_cast<double>((bits >> 12) + 1);
}

std::string random_text(const base::Rng& rng, std::uint64_t index) {
  static const std::vector<std::string> kPieces = {"a",    "\"", ",", "|",    "&", "\n", "\r",
                                                   "\t",   "\\", "ß", "日本", "😀", " ",  std::string(1, '\0'),
                                                   "\x1b", "/",  "{", "x=1"};
  std::string text = "t";
  const std::uint64_t length = rng.bits(index) % 12;
  for (std::uint64_t i = 0; i < length; ++i) text += kPieces[rng.bits(index * 31 + i) % kPieces.size()];
  return text;
}

/// The columns whose words are known, at random again, and a median where one belongs.
void make_possible(Row& row, const base::Rng& rng) {
  const auto pick = [&](std::uint64_t index, const std::vector<std::string>& words) {
    return words[rng.bits(index) % words.size()];
  };
  row.status = pick(90, {status::kOk, status::kIncorrect, status::kTimeout, status::kInterrupted});
  row.pass = pick(91, {"", "fwd", "bwd", "fwd_bwd"});
  row.dtype = pick(92, {"", "fp32", "bf16", "fp16"});
  row.cache = pick(93, {"", "cold", "hot"});
  row.timing = pick(94, {"", "wall", "events", "graph", "declared"});
  for (Integer Row::*flag : {&Row::causal, &Row::launch_bound, &Row::foreign_memory}) {
    if (row.*flag) row.*flag = *(row.*flag) % 2;
  }
  if (row.status != status::kOk) {
    row.time_us_median.reset();
  } else if (!row.time_us_median) {
    row.time_us_median = 1.5;
  }
}

}  // namespace

Row random_row(std::uint64_t seed) {
  const base::Rng rng(seed, 7);
  Row row;
  std::uint64_t index = 0;
  for (const Column& column : columns()) {
    ++index;
    const std::uint64_t bits = rng.bits(index * 1000);
    if (rng.bits(index * 1000 + 1) % 4 == 0) continue;
    if (const auto* text = std::get_if<Text Row::*>(&column.field)) row.*(*text) = random_text(rng, index * 1000 + 2);
    if (const auto* number = std::get_if<Number Row::*>(&column.field)) row.*(*number) = random_number(bits);
    if (const auto* integer = std::get_if<Integer Row::*>(&column.field)) {
      row.*(*integer) = static_cast<std::int64_t>(bits % 2 == 0 ? bits >> 1 : bits % 100);
    }
  }
  row.schema_version = 1;
  row.kernel.append(1, 'k');
  for (std::uint64_t i = 0; i < seed % 5; ++i) row.sample_times_us.push_back(random_number(rng.bits(i + 77)));
  make_possible(row, rng);
  return row;
}

std::string golden_path(const std::string& name) {
  return fmt::format("{}/tests/golden/reports/{}", ATTNBENCH_SOURCE_DIR, name);
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) ADD_FAILURE() << "cannot read " << path;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void expect_golden(const std::string& name, const std::string& bytes) {
  if (std::getenv("ATTNBENCH_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(golden_path(name), std::ios::binary) << bytes;
    return;
  }
  EXPECT_EQ(file_bytes(golden_path(name)), bytes)
      << "if the change is wanted, run the test again with ATTNBENCH_UPDATE_GOLDEN=1 and review the diff";
}

}  // namespace attnbench::reports
