// Training without any sharding: one process, all weights in memory, AdamW. What the engine is compared with.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/model.hpp"

namespace attnbench::fsdp {

struct AdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.01;
  double clip = 0;  // largest global norm of the gradients; 0: none
};

/// Owns masters in fp32, copies of them in the compute dtype, activations and gradients, all from the device.
class PlainTrainer {
 public:
  static base::Result<std::unique_ptr<PlainTrainer>> make(Model model, const TokenShape& shape,
                                                          const Numerics& numerics, Device& device);

  /// The fp32 master of a parameter, by name; a tied one is its owner's.
  std::vector<float>& master(const std::string& name) { return masters_.at(name); }
  const std::map<std::string, std::vector<float>>& masters() const { return masters_; }
  /// Gradients of the latest run, widened and with the loss scale taken out.
  const std::map<std::string, std::vector<float>>& gradients() const { return gradients_; }

  /// Forward and backward; returns the loss.
  base::Result<double> run(const std::int32_t* tokens, const std::int32_t* targets, float loss_scale = 1.0f);
  /// The forward alone.
  base::Result<double> loss(const std::int32_t* tokens, const std::int32_t* targets);
  /// One update from the gradients of the latest run; returns their norm before clipping.
  double update(const AdamW& optimizer);

 private:
  struct Part {
    const Layer* layer = nullptr;
    LayerPlan plan;
    kernels::Buffer saved, out;
    std::vector<kernels::Buffer> params, grads;
    std::vector<const void*> param_pointers;
    std::vector<GradTarget> targets;
    std::unique_ptr<BoundLayer> bound;
  };

  PlainTrainer(Model model, const Numerics& numerics, Device& device)
      : model_(std::move(model)), numerics_(numerics), device_(device) {}
  base::Result<void> allocate(const TokenShape& shape);
  base::Result<void> forward(const std::int32_t* tokens, const std::int32_t* targets);
  base::Result<void> backward(const std::int32_t* tokens, const std::int32_t* targets, float loss_scale);
  void round_params();
  void collect_gradients(float loss_scale);

  Model model_;
  Numerics numerics_;
  Device& device_;
  kernels::Buffer workspace_;
  kernels::Buffer slopes_[2];
  std::vector<Part> parts_;
  std::map<std::string, std::vector<float>> masters_, gradients_, first_, second_;
  float loss_ = 0;
  int step_ = 0;
};

/// fp32 from and to the elements of a dtype, on the host.
std::vector<float> widened(const void* data, Dtype dtype, std::size_t count);
void rounded(const std::vector<float>& values, Dtype dtype, void* data);

}  // namespace attnbench::fsdp
