// The one table of tile shapes, and the rule that picks a row of it from the number of tiles and of multiprocessors.
#pragma once

#include <cstdint>

namespace attnbench::kernels::flash_cuda {

/// How inputs reach the tensor cores. kSplit: fp32 as two bf16 planes, three products each.
enum class Kind : int { kBf16 = 0, kFp16 = 1, kSplit = 2 };

constexpr int planes_of(Kind kind) { return kind == Kind::kSplit ? 2 : 1; }

/// Forward tile: warps_m * 16 * frags_m query rows; each of `split` warp groups takes its own key_tile keys of a step
/// and the groups' results are merged at the end, which shortens the longest tile of a small grid.
struct FwdConfig {
  int frags_m = 1;
  int warps_m = 4;
  int split = 1;
  int key_tile = 64;
  int stages = 2;
  bool q_in_registers = true;
  int blocks_per_sm = 1;

  constexpr int rows() const { return warps_m * 16 * frags_m; }
  constexpr int threads() const { return warps_m * split * 32; }
  constexpr int step() const { return key_tile * split; }
};

/// 0 wide: most reuse per shared-memory byte; 1 tall: half the rows; 2 split: two groups of warps; 3 short (16-bit, up
/// to D 64): a quarter of the rows, so that a grid of few heads has a long and a short tile for every multiprocessor.
inline constexpr int kFwdVariants = 4;

/// B fragments are read from shared memory once per 16 * frags_m rows: with frags_m = 1 that traffic (256 bytes per
/// 2048 multiply-adds) and not the tensor cores would be the limit, so full grids use 2 where registers allow:
/// scores 32 + output D/2 (+ Q D/4) times frags_m.
constexpr FwdConfig fwd_config(int d, int planes, int variant) {
  if (planes == 1) {
    if (variant == 0) {
      if (d <= 64) return {2, 4, 1, 64, 2, true, 2};
      if (d <= 128) return {2, 4, 1, 64, 2, false, 2};
      return {1, 8, 1, 64, 2, false, 1};
    }
    const int split = variant >= 2 ? 2 : 1;
    if (variant == 3 && d <= 32) return {1, 2, 2, 64, 2, true, 2};
    if (variant == 3 && d <= 64) return {1, 2, 4, 32, 2, true, 2};
    if (d <= 32) return {1, 4, split, 64, 2, true, split == 1 ? 3 : 2};
    if (d <= 64) return {1, 4, split, 64, 2, true, split == 1 ? 2 : 1};
    if (d <= 128) return {1, 4, split, 64, 2, d == 96, split == 1 ? 2 : 1};
    return {1, 4, 1, 64, 2, false, 1};
  }
  const int split = variant >= 2 ? 2 : 1;
  if (d <= 64) return {1, 4, split, 64, 2, d <= 32, split == 1 ? 2 : 1};
  if (d <= 128) return {1, 4, 1, 32, 2, false, 1};
  return {1, 4, 1, 32, 2, false, 1};
}

constexpr bool operator==(const FwdConfig& a, const FwdConfig& b) {
  return a.frags_m == b.frags_m && a.warps_m == b.warps_m && a.split == b.split && a.key_tile == b.key_tile &&
         a.stages == b.stages && a.q_in_registers == b.q_in_registers && a.blocks_per_sm == b.blocks_per_sm;
}

/// Bytes of one shared-memory row: the odd number of 16-byte chunks keeps ldmatrix free of bank conflicts (eight rows
/// start in eight different groups of four banks) without a swizzle, so that addresses are a lane offset plus a
/// constant.
constexpr int row_bytes(int d) { return (d + 8) * 2; }

constexpr int fwd_shared_bytes(int d, int planes, const FwdConfig& c) {
  const int tiles = planes * row_bytes(d) * (c.rows() + 2 * c.stages * c.step());
  // Output, maximum, base and sum of every group but the first.
  const int merge = (c.split - 1) * c.warps_m * 32 * 4 * c.frags_m * (d / 2 + 6);
  return tiles > merge ? tiles : merge;
}

/// Backward tile over keys: warps_kv * 16 * frags_m key rows against query tiles that stream past. With warps_d = 2
/// two warps share their key rows: each computes P and dS for half of the queries, exchanges them through shared
/// memory, and owns half of the columns of dK and dV, whose accumulators would not fit otherwise.
struct BwdKvConfig {
  int frags_m = 1;
  int warps_kv = 4;
  int warps_d = 1;
  int query_tile = 64;
  int query_sub = 32;  // queries whose scores are in registers at once
  int stages = 2;
  int dq_warps_q = 2;  // dQ of a step: dq_warps_q by warps / dq_warps_q warps over queries by columns
  int blocks_per_sm = 1;

  constexpr int rows() const { return warps_kv * 16 * frags_m; }
  constexpr int threads() const { return warps_kv * warps_d * 32; }
};

inline constexpr int kBwdKvVariants = 2;  // 0 for full grids, 1 with half the key rows

/// Accumulators per thread: dK, dV D/2 each times frags_m / warps_d, scores and dP query_sub / 2 each times frags_m.
constexpr BwdKvConfig bwd_kv_config(int d, int planes, int variant) {
  if (planes == 1) {
    if (d <= 64) {
      const int dq = d == 16 ? 4 : 2;
      return variant == 0 ? BwdKvConfig{2, 4, 1, 64, 32, 2, dq, 2} : BwdKvConfig{1, 4, 1, 64, 64, 2, dq, 2};
    }
    if (d <= 128) {
      const int dq = d == 96 ? 4 : 2;
      return variant == 0 ? BwdKvConfig{1, 8, 1, 64, 64, 2, dq, 1} : BwdKvConfig{1, 4, 1, 64, 64, 2, 2, 1};
    }
    return {1, 4, 2, 64, 32, 2, 2, 1};
  }
  if (d <= 32) return {1, 4, 1, 64, 32, 2, 4, 2};
  if (d <= 64) return {1, 4, 1, 32, 32, 2, 2, 2};
  if (d <= 128) return {1, 4, 1, 32, 32, 2, 2, 1};
  return {1, 4, 2, 32, 16, d <= 192 ? 2 : 1, 2, 1};
}

constexpr int bwd_kv_shared_bytes(int d, int planes, const BwdKvConfig& c) {
  const int tiles = planes * row_bytes(d) * (2 * c.rows() + 2 * c.stages * c.query_tile);
  const int stats = c.stages * c.query_tile * 8;
  const int exchange = planes * row_bytes(c.query_tile) * c.rows() * (c.warps_d > 1 ? 2 : 1);
  return tiles + stats + exchange;
}

/// Backward tile over queries (dQ alone): 64 query rows, keys stream past.
struct BwdQConfig {
  int warps_m = 4;
  int key_tile = 64;
  int stages = 2;
  int blocks_per_sm = 1;

  constexpr int rows() const { return warps_m * 16; }
  constexpr int threads() const { return warps_m * 32; }
};

constexpr BwdQConfig bwd_q_config(int d, int planes) {
  if (planes == 1) return {4, 64, 2, d <= 64 ? 2 : 1};
  if (d <= 64) return {4, 32, 2, 2};
  return {4, 32, d <= 192 ? 2 : 1, 1};
}

constexpr int bwd_q_shared_bytes(int d, int planes, const BwdQConfig& c) {
  return planes * row_bytes(d) * 2 * (c.rows() + c.stages * c.key_tile);
}

/// Forward variant for a grid: wide when its tiles fill the chip about twice over, else the shorter tiles. On an H200,
/// bf16, causal, 8 heads of 1024: short tiles took 12.6 us at D 32 and 16.6 at D 64, split ones 14.3 and 18.6; with 8
/// heads of 4096 at D 32, split ones 64.4, tall ones 68.7.
inline int choose_fwd_variant(int d, int planes, std::int64_t heads, std::int64_t seq_q, int multiprocessors) {
  const FwdConfig wide = fwd_config(d, planes, 0);
  const std::int64_t wide_tiles = heads * ((seq_q + wide.rows() - 1) / wide.rows());
  if (wide_tiles >= 3 * multiprocessors) return 0;
  const FwdConfig tall = fwd_config(d, planes, 1);
  const std::int64_t tall_tiles = heads * ((seq_q + tall.rows() - 1) / tall.rows());
  const bool narrow = planes == 1 && d <= 32;
  if (tall_tiles >= 2 * multiprocessors) return narrow ? 2 : 1;
  const FwdConfig small = fwd_config(d, planes, 3);
  const std::int64_t short_tiles = heads * ((seq_q + small.rows() - 1) / small.rows());
  return short_tiles <= 2 * multiprocessors ? 3 : 2;  // all of them at once, or fewer and longer ones
}

/// Backward variant: the taller tiles when they fill the chip about three times over. On an H200 at D 64, causal, 256
/// tall tiles took 270 us and 512 short ones 210; with 4096 tall tiles the order is reversed, 862 against 1036.
inline int choose_bwd_kv_variant(int d, int planes, std::int64_t kv_heads, std::int64_t seq_k, int multiprocessors) {
  const BwdKvConfig tall = bwd_kv_config(d, planes, 0);
  const std::int64_t tiles = kv_heads * ((seq_k + tall.rows() - 1) / tall.rows());
  return tiles >= 3 * multiprocessors ? 0 : 1;
}

}  // namespace attnbench::kernels::flash_cuda
