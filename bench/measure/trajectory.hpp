// A training run that another implementation computed: where it began, what it saw, every loss, where it ended.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/measure/safetensors.hpp"

namespace attnbench::measure {

/// As the file has it; tensors are in double as far as they are compared, in float where a run starts from them.
struct Trajectory {
  std::string name;
  std::int64_t vocab = 0, layers = 0, d_model = 0, d_ff = 0, heads = 0, batch = 0, context = 0, steps = 0;
  double rms_eps = 0, rope_theta = 0;
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, clip = 0;
  std::vector<std::int32_t> tokens, targets;  // [steps, batch, context] each
  std::vector<double> losses, grad_norms;     // [steps]
  std::map<std::string, std::vector<float>> init;
  std::map<std::string, std::vector<double>> first_gradients, last_weights;
};

/// Metadata: the names above. Tensors: tokens [steps, batch, context + 1], losses, grad_norms, init.NAME, grad0.NAME,
/// final.NAME.
///
/// Errors  kUnreadable: a value is missing or is no number, a tensor is missing or of another shape, a token is not in
///         the vocabulary
base::Result<Trajectory> read_trajectory(const SafeTensors& file);

}  // namespace attnbench::measure
