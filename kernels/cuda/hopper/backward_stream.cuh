// How a backward block moves through its work: the two threads that feed it, and where its consumers are.
#pragma once

#include <climits>

#include "kernels/cuda/hopper/backward.cuh"

namespace attnbench::kernels::hopper {

inline constexpr int kTurnBarrier = 3;  // named, and the next one: one consumer's part of dQ is added

/// One of two threads that issue copies: K, and Q of every step with its lse and delta, or V and dO.
template <typename Shape, bool kLeads>
struct BackwardStream {
  const BackwardParams& p;
  BackwardBarriers& bar;
  const CUtensorMap *map_key, *map_query;
  char* shared;
  std::uint64_t *key_full, *key_empty, *full, *empty;
  int tiles = 0;  // so far
  int steps = 0;

  __device__ void load_step(int query0, int head, int batch) {
    const int stage = stage_of(steps);
    barrier_wait(empty + stage, parity_of(steps) ^ 1);
    barrier_expect(full + stage, Shape::kQueryBytes + (kLeads ? 2 * Shape::kStatBytes : 0));
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      copy_in(
          shared + (kLeads ? Shape::kQueryAt : Shape::kOutputAt) + stage * Shape::kQueryBytes + c * Shape::kTileM * 128,
          map_query, full + stage, c * 64, query0, head, batch);
    }
    if constexpr (kLeads) {
      const unsigned row = static_cast<unsigned>((batch * p.shape.heads + head) * p.rows + query0);
      copy_line_in(shared + Shape::kLseAt + stage * Shape::kStatBytes, p.lse + row, full + stage, Shape::kStatBytes);
      copy_line_in(shared + Shape::kDeltaAt + stage * Shape::kStatBytes, p.delta + row, full + stage,
                   Shape::kStatBytes);
    }
    ++steps;
  }

  __device__ void load_tile() {
    constexpr int kStages = Shape::kKeyStages;
    const int stage = stage_of<kStages>(tiles);
    const BackwardTile& tile = bar.tile[stage_of(tiles)];
    barrier_wait(key_empty + stage, parity_of<kStages>(tiles) ^ 1);
    barrier_expect(key_full + stage, Shape::kKeyBytes);
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      copy_in(shared + (kLeads ? 0 : Shape::kValueAt) + stage * Shape::kKeyBytes + c * Shape::kKeys * 128, map_key,
              key_full + stage, c * 64, tile.key0, tile.kv_head, tile.batch);
    }
#pragma unroll 1
    for (int member = 0; member < p.shape.group; ++member) {
#pragma unroll 1
      for (int query0 = tile.query0; query0 < tile.query_end; query0 += Shape::kTileM) {
        load_step(query0, tile.kv_head * p.shape.group + member, tile.batch);
      }
    }
    ++tiles;
  }

  /// Tells the others about tile t, if any query sees its keys; the other tiles are the host's business. t beyond the
  /// last: that there is none.
  __device__ bool announce(int t) {
    const int stage = stage_of(tiles);
    Steps range{};
    flash_cuda::Work work{};
    if (t < p.tiles) {
      work = work_of(p, t);
      range = steps_of<Shape::kTileM, Shape::kKeys>(p.shape, work.tile * Shape::kKeys);
      if (range.count == 0) return false;
    }
    barrier_wait(&bar.tile_empty[stage], parity_of(tiles) ^ 1);
    BackwardTile& tile = bar.tile[stage];
    tile.batch = work.batch;
    tile.kv_head = work.head_in_batch;
    tile.key0 = work.tile * Shape::kKeys;
    tile.query0 = range.begin * Shape::kTileM;
    tile.query_end = (range.begin + range.tiles) * Shape::kTileM;
    tile.unmasked_from = tile.key0 + Shape::kKeys > p.shape.seq_k ? INT_MAX : range.last_key.begin;
    // A last query tile that is not full has rows of zeros, whose P is zero: no mask.
    tile.unmasked_to = range.first_key.end == p.shape.seq_q ? INT_MAX : range.first_key.end;
    tile.steps = range.count;
    barrier_arrive(&bar.tile_full[stage]);
    return true;
  }

  /// The stream that takes tiles.
  __device__ void lead() {
#pragma unroll 1
    for (int t = static_cast<int>(blockIdx.x);;) {
      const bool seen = announce(t);
      if (t >= p.tiles) return;
      if (seen) load_tile();
      t = static_cast<int>(gridDim.x) + atomicAdd(p.counter, 1);
    }
  }

  __device__ void follow() {
#pragma unroll 1
    for (;;) {
      const int stage = stage_of(tiles);
      barrier_wait(&bar.tile_full[stage], parity_of(tiles));
      if (bar.tile[stage].steps == 0) return;
      load_tile();
      barrier_arrive(&bar.tile_empty[stage]);
    }
  }
};

/// Where a consumer warpgroup is: its tile, its step, its part of dQ.
template <typename Shape>
struct BackwardCursor {
  const BackwardParams& p;
  char* shared;
  BackwardBarriers& bar;
  int group;
  int thread;
  int tiles = 0;  // finished so far
  int steps = 0;
  int query0;
  int left;      // steps of the tile
  bool masked;   // some key of the tile is hidden from some query of the step
  float* slice;  // this thread's part of the step's dQ

  __device__ BackwardCursor(const BackwardParams& params, char* shared_memory, BackwardBarriers& barriers, int group_)
      : p(params), shared(shared_memory), bar(barriers), group(group_), thread(static_cast<int>(threadIdx.x) % 128) {}

  __device__ const BackwardTile& tile() const { return bar.tile[stage_of(tiles)]; }
  __device__ char* key_tile() const { return shared + stage_of<Shape::kKeyStages>(tiles) * Shape::kKeyBytes; }
  __device__ char* query() const { return shared + Shape::kQueryAt + stage_of(steps) * Shape::kQueryBytes; }
  __device__ char* output() const { return shared + Shape::kOutputAt + stage_of(steps) * Shape::kQueryBytes; }
  __device__ const float* stats(int at) const {
    return reinterpret_cast<const float*>(shared + at + stage_of(steps) * Shape::kStatBytes) + 2 * (thread % 4);
  }

  /// What the forward saved of the rows of this step, or of the next tile's first, from this thread's first row on.
  __device__ SavedRows saved_rows(bool of_next_tile) const {
    long long head = (slice - thread * 4 - group * Shape::kGroupFloats - p.dq_sum) / (Shape::kChunks * 64) / p.rows;
    int query = query0;
    if (of_next_tile) {
      const BackwardTile& next = bar.tile[stage_of(tiles + 1)];
      head = static_cast<long long>(next.batch) * p.shape.heads + next.kv_head * p.shape.group;
      query = next.query0;
    }
    query += 2 * (thread % 4);
    return {p.saved + head * p.shape.seq_q + query, p.shape.seq_q - query};
  }

  /// P of a step from its S.
  __device__ void weigh(float (&scores)[Shape::kTileM / 2], bool of_next_tile) const {
    const float* const lse = stats(Shape::kLseAt);
    const float c = p.shape.scale * flash_cuda::kLog2e;
    if (p.saved != nullptr && any_far<Shape::kTileM>(lse - 2 * (thread % 4))) {
      exact_probabilities_of<Shape::kTileM>(scores, saved_rows(of_next_tile), c);
    } else {
      probabilities_of<Shape::kTileM>(scores, lse, c);
    }
  }

  /// Takes the tile that `tiles` counts up to; false when there is none.
  __device__ bool fetch(int count) {
    barrier_wait(&bar.tile_full[stage_of(count)], parity_of(count));
    return __shfl_sync(0xffffffffu, bar.tile[stage_of(count)].steps, 0) > 0;
  }

  __device__ void look() { masked = query0 < tile().unmasked_from || query0 + Shape::kTileM > tile().unmasked_to; }

  __device__ void start() {
    const BackwardTile& now = tile();
    query0 = now.query0;
    left = __shfl_sync(0xffffffffu, now.steps, 0);
    const long long head = static_cast<long long>(now.batch) * p.shape.heads + now.kv_head * p.shape.group;
    slice = p.dq_sum + (head * p.rows + now.query0) * (Shape::kChunks * 64) + group * Shape::kGroupFloats + thread * 4;
    look();
  }

  /// To the next step of the tile: the next queries, or the first of the next head of the group.
  __device__ void advance() {
    --left;
    query0 += Shape::kTileM;
    slice += Shape::kStepFloats;
    if (query0 == tile().query_end) {
      query0 = tile().query0;
      slice += (p.rows - (tile().query_end - query0)) * static_cast<long long>(Shape::kChunks * 64);
    }
    look();
  }

  /// Before this step's dQ is added. Ordered: waits for its turn; those after it are told by end_turn, in the next
  /// step, when the sums have had time to arrive.
  __device__ void take_turn() {
    if constexpr (Shape::kOrdered) {
      const long long step = (slice - group * Shape::kGroupFloats - p.dq_sum) / Shape::kStepFloats;
      int* const place = p.turns + 2 * step + group;
      const int mine = turn_of<Shape::kTileM, Shape::kKeys>(p.shape, tile().key0 / Shape::kKeys, query0);
      while (load_acquire(place) != mine) {
      }
      if (thread == 0) {
        bar.turn_place[group] = place;
        bar.turn_next[group] = mine + 1;
      }
    }
  }

  __device__ void end_turn() {
    __threadfence();
    group == 0 ? named_sync<128>(kTurnBarrier) : named_sync<128>(kTurnBarrier + 1);
    if (thread == 0 && bar.turn_place[group] != nullptr) {
      store_release(bar.turn_place[group], bar.turn_next[group]);
      bar.turn_place[group] = nullptr;
    }
  }
};

}  // namespace attnbench::kernels::hopper
