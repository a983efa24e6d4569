// Runs the engine on every rank and puts what the ranks keep together.
#include "training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/device/cpu_device.hpp"

namespace attnbench::fsdp::tests {

using base::Result;

Trajectory train(const Model& model, const Training& run) {
  Trajectory result;
  const Layout layout = *make_layout(model, 1, false);
  for (const Unit& unit : layout.units) {
    for (const Placement& param : unit.params) {
      if (!param.tied) result.weights[param.spec.name].resize(static_cast<std::size_t>(param.elements));
    }
  }
  const TokenShape shape{run.batch / (run.world * run.options.micro_batches), kSeq};
  expect_world(run.world, run.world_options, [&](int rank, Communicator& communicator) -> Result<void> {
    kernels::CpuDevice device(1);
    auto engine = Engine::make(model, shape, run.options, device, communicator);
    if (!engine) return tl::unexpected(engine.error());
    if (auto ok = (*engine)->initialize(1); !ok) return ok;
    for (int step = 0; step < kSteps; ++step) {
      const Tokens tokens = random_tokens(run.seed + static_cast<std::uint64_t>(step), run.batch, kSeq, kVocab);
      std::vector<TokenBatch> batches;
      for (int micro = 0; micro < run.options.micro_batches; ++micro) {
        batches.push_back(tokens.rows((micro * run.world + rank) * shape.batch, shape));
      }
      const auto report = (*engine)->step(batches);
      if (!report) return tl::unexpected(report.error());
      const auto clean = (*engine)->padding_is_zero();
      EXPECT_TRUE(clean && *clean) << "padding is no longer 0";
      if (rank != 0) continue;
      result.losses.push_back(report->loss);
      result.norms.push_back(report->gradient_norm.value_or(-1));
      result.skipped.push_back(report->skipped);
    }
    for (auto& [name, values] : result.weights) {
      if (run.options.strategy == Strategy::kDdp && rank != 0) continue;
      if (auto ok = write_kept(**engine, name, Engine::Kept::kWeight, values); !ok) return ok;
    }
    return {};
  });
  return result;
}

double largest_difference(const Trajectory& a, const Trajectory& b) {
  double largest = 0;
  for (const auto& [name, values] : a.weights) {
    const std::vector<float>& other = b.weights.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, static_cast<double>(std::fabs(values[i] - other[i])));
    }
  }
  for (std::size_t i = 0; i < a.losses.size(); ++i) largest = std::max(largest, std::fabs(a.losses[i] - b.losses[i]));
  return largest;
}

Training run_of(int world, OptimizerKind kind) {
  Training run;
  run.world = world;
  run.batch = 24;
  run.options.optimizer.kind = kind;
  run.options.optimizer.lr = kind == OptimizerKind::kSgd ? 0.1 : 0.01;
  return run;
}

}  // namespace attnbench::fsdp::tests
