// Developer's tool: times every row of the Hopper forward's tile table, in several tile orders, on the large grid and
// on the reference grid. Comma-separated values on standard output; choose rows and orders from them.
//
//   attnbench_hopper_bench large|small [head_dim...]
//
// large: batch * length = 16384, heads * head_dim = 2048, L2 flushed before each launch. small: batch 8, one head,
// causal, twenty launches in a graph, L2 warm. Rows of a problem take turns; three rounds; the median of all samples.
//
// Build: cmake --build build --target attnbench_hopper_bench
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/dev/bench_tools.cuh"
#include "kernels/cuda/hopper/forward_plan.cuh"

namespace attnbench::dev {

struct Case {
  Problem p;
  void *q, *k, *v, *o;
  float* lse;
  int* counters;

  explicit Case(const Problem& problem) : p(problem) {
    const std::int64_t n = p.batch * p.heads * p.seq_q * p.head_dim;
    unsigned seed = 0;
    for (void** x : {&q, &k, &v, &o}) {
      CHECK_CUDA(cudaMalloc(x, n * 2));
      fill_normal(static_cast<__nv_bfloat16*>(*x), nullptr, dense_elements(n), n, ++seed);
    }
    CHECK_CUDA(cudaMalloc(&lse, p.batch * p.heads * p.seq_q * 4));
    CHECK_CUDA(cudaMalloc(&counters, 8));
    CHECK_CUDA(cudaMemset(counters, 0, 8));
  }
  ~Case() {
    for (void* x : {q, k, v, o}) cudaFree(x);
    cudaFree(lse);
    cudaFree(counters);
  }
  AttentionArgs args() const {
    const std::array<std::int64_t, 4> extent{p.batch, p.heads, p.seq_q, p.head_dim};
    const auto tensor = [&](void* data) { return Tensor{data, p.dtype, extent, dense_strides(extent)}; };
    AttentionArgs made;
    made.problem = p;
    made.q = tensor(q);
    made.k = tensor(k);
    made.v = tensor(v);
    made.o = tensor(o);
    made.lse = lse;
    return made;
  }
};

struct Candidate {
  const hopper::ForwardInstance* row;
  hopper::ForwardPlan plan;
  std::string name;
  std::unique_ptr<Timer> timer;
  std::vector<double> samples;
};

/// The rows for a problem, each in the planned tile order and in `orders` of (section, first head of the last section).
std::vector<Candidate> candidates(const Case& c, int cores) {
  std::vector<Candidate> made;
  for (const auto& table : hopper::forward_tables()) {
    for (const hopper::ForwardInstance& row : table) {
      const hopper::TileChoice& tile = row.tile;
      if (tile.head_dim != c.p.head_dim || tile.masked != c.p.causal) continue;
      CHECK_CUDA(row.bf16.allow());
      auto plan = hopper::plan_forward(c.args(), tile, cores, c.counters);
      if (!plan) std::printf("%s\n", plan.error().message.c_str());
      const std::string shape = std::to_string(64 * tile.consumers) + "x" + std::to_string(tile.tile_n) + "s" +
                                std::to_string(tile.stages) + "q" + std::to_string(tile.query_stages) + tile.tag;
      made.push_back({&row, *plan, shape + ",planned", nullptr, {}});
      if (std::getenv("ORDERS") == nullptr) continue;
      const int heads = static_cast<int>(c.p.batch * c.p.heads);
      const int wave = std::max(1, (cores + plan->params.tiles_m - 1) / plan->params.tiles_m);
      for (const int section : {1, 4 * wave}) {
        for (const int last : {0, 2}) {
          Candidate next{
              &row, *plan, shape + ",section" + std::to_string(section) + "last" + std::to_string(last), nullptr, {}};
          const int width = std::min(section, heads);
          hopper::order_tiles(next.plan.params, heads, width, std::max(0, heads - last * wave) / width * width);
          made.push_back(std::move(next));
        }
      }
    }
  }
  return made;
}

void run(const Problem& p, cudaStream_t stream, int cores, bool cold) {
  const Case c(p);
  std::vector<Candidate> all = candidates(c, cores);
  for (Candidate& one : all) {
    one.timer = std::make_unique<Timer>(stream, cold, [&] { CHECK_CUDA(one.row->bf16.launch(one.plan, stream)); });
  }
  for (int round = 0; round < 3; ++round) {
    for (Candidate& one : all) {
      (void)one.timer->take_us();  // after another row's launches
      for (int i = 0; i < 5; ++i) one.samples.push_back(one.timer->take_us());
    }
  }
  const double flops = 4.0 * p.batch * p.heads * p.seq_q * p.seq_k * p.head_dim * (p.causal ? 0.5 : 1.0);
  for (const Candidate& one : all) {
    const double us = median(one.samples);
    std::printf("%lld,%d,%lld,%s,%.2f,%.1f\n", static_cast<long long>(p.head_dim), p.causal,
                static_cast<long long>(p.seq_q), one.name.c_str(), us, flops / us * 1e-6);
  }
  std::fflush(stdout);
}

}  // namespace attnbench::dev

int main(int argc, char** argv) {
  using attnbench::kernels::Dtype;
  using attnbench::kernels::Problem;
  const bool large = argc > 1 && std::string(argv[1]) == "large";
  cudaDeviceProp prop{};
  CHECK_CUDA(cudaGetDeviceProperties(&prop, 0));
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::printf("head_dim,causal,seq_len,tile,order,time_us_median,tflops\n");
  for (const std::int64_t d : attnbench::dev::numbers(argc, argv, 2)) {
    const float scale = attnbench::kernels::default_scale(d);
    for (const bool causal : large ? std::vector<bool>{false, true} : std::vector<bool>{true}) {
      for (std::int64_t s = large ? 512 : 256; s <= (large ? 16384 : 4096); s *= 2) {
        const Problem p = large ? Problem{16384 / s, 2048 / d, 2048 / d, s, s, d, Dtype::kBf16, causal, -1, scale}
                                : Problem{8, 1, 1, s, s, d, Dtype::kBf16, causal, -1, scale};
        attnbench::dev::run(p, stream, prop.multiProcessorCount, large);
      }
    }
  }
  return 0;
}
