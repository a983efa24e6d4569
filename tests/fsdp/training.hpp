// Whole training runs of the toy on threads, to be compared bit by bit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "toy.hpp"

namespace attnbench::fsdp::tests {

inline constexpr std::int64_t kSeq = 5;
inline constexpr std::int64_t kVocab = 11;
inline constexpr int kSteps = 3;

/// A run as the ranks see it together: all losses and norms, all weights at the end.
struct Trajectory {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<bool> skipped;
  std::map<std::string, std::vector<float>> weights;

  bool operator==(const Trajectory&) const = default;
};

struct Training {
  int world = 1;
  std::int64_t batch = 8;  // of all ranks and micro-batches together
  EngineOptions options;
  WorldOptions world_options;
  std::uint64_t seed = 7;
};

/// Trains for kSteps; rank r of N with M micro-batches takes rows (m N + r) b of each step's batch.
Trajectory train(const Model& model, const Training& run);

/// Largest difference of any weight or loss.
double largest_difference(const Trajectory& a, const Trajectory& b);

/// 24 sequences a step on `world` ranks.
Training run_of(int world, OptimizerKind kind = OptimizerKind::kAdamW);

}  // namespace attnbench::fsdp::tests
