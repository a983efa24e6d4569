// Trains along a trajectory that another implementation computed, and says how far the two are apart.
#pragma once

#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "bench/measure/trajectory.hpp"
#include "fsdp/communicator.hpp"
#include "fsdp/model.hpp"
#include "fsdp/options.hpp"

namespace attnbench::run {

/// One comparison, over all ranks.
struct ReplayError {
  std::string what;  // "step 3 loss", "grad0 layers.0.ln1.weight", "final lm_head.weight"
  double error = 0;
  double allowed = 0;  // 0: not judged, for a run in 16 bits
  bool relative = true;

  bool passed() const { return allowed == 0 || error <= allowed; }  // NaN does not pass
};

/// fp32: losses 1e-5 relative, norms 1e-4 relative, first gradients 1e-5 of the tensor's largest magnitude, last
/// weights 2e-4 absolute. 16 bits: losses 1e-2 relative; the others are shown, not judged.
struct ReplayBounds {
  double loss = 1e-5;
  double norm = 1e-4;
  double gradient = 1e-5;
  double weight = 2e-4;
};
ReplayBounds replay_bounds(const fsdp::EngineOptions& options);

/// The model that the file describes.
fsdp::ModelConfig replay_model(const measure::Trajectory& run);

/// Trains every step; each rank takes its share of the batch. The optimizer's numbers are the file's, the rest of the
/// options is kept. Every rank gets the same list: all losses, norms, first gradients, last weights.
///
/// Errors  kUsage: the batch does not divide by ranks and micro-batches; of the engine
base::Result<std::vector<ReplayError>> replay(const measure::Trajectory& run, fsdp::EngineOptions options,
                                              kernels::Device& device, fsdp::Communicator& communicator,
                                              const std::string& attention = "auto");

}  // namespace attnbench::run
