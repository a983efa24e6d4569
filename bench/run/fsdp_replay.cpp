// Each rank compares what it keeps; the largest error of all ranks counts.
#include "bench/run/fsdp_replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fsdp/engine.hpp"
#include "fsdp/numbers.hpp"

namespace attnbench::run {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using fsdp::Engine;

/// The larger of two errors; NaN is larger than any number.
double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

double relative_error(double value, double expected) { return std::fabs(value - expected) / std::fabs(expected); }

/// Largest error of this rank's part of a tensor.
Result<double> kept_error(const Engine& engine, const std::string& name, Engine::Kept what, double scale,
                          const std::vector<double>& expected) {
  std::int64_t begin = 0;
  const auto kept = engine.read_kept(name, what, begin);
  if (!kept) return tl::unexpected(kept.error());
  double largest = 0;
  for (std::size_t i = 0; i < kept->size(); ++i) {
    const double value = static_cast<double>((*kept)[i]) * scale;
    largest = worse(std::fabs(value - expected.at(static_cast<std::size_t>(begin) + i)), largest);
  }
  return largest;
}

class Replay {
 public:
  Replay(const measure::Trajectory& run, const fsdp::EngineOptions& options, Engine& engine,
         fsdp::Communicator& communicator, const fsdp::TokenShape& shape)
      : run_(run),
        options_(options),
        bounds_(replay_bounds(options)),
        engine_(engine),
        communicator_(communicator),
        shape_(shape) {}

  Result<std::vector<ReplayError>> go() {
    for (const auto& [name, values] : run_.init) {
      if (auto ok = engine_.set_parameter(name, values); !ok) return tl::unexpected(ok.error());
    }
    std::vector<ReplayError> gradients;
    for (std::int64_t step = 0; step < run_.steps; ++step) {
      if (auto ok = one_step(step, gradients); !ok) return tl::unexpected(ok.error());
    }
    errors_.insert(errors_.end(), gradients.begin(), gradients.end());
    for (const auto& [name, expected] : run_.last_weights) {
      const auto error = kept_error(engine_, name, Engine::Kept::kWeight, 1, expected);
      if (!error) return tl::unexpected(error.error());
      errors_.push_back({"final " + name, *error, bounds_.weight, false});
    }
    return over_all_ranks();
  }

 private:
  Result<void> one_step(std::int64_t step, std::vector<ReplayError>& gradients) {
    std::vector<fsdp::TokenBatch> batches;
    const fsdp::WorldInfo& world = communicator_.world();
    for (int micro = 0; micro < options_.micro_batches; ++micro) {
      const std::int64_t row = step * run_.batch + (micro * world.size + world.rank) * shape_.batch;
      const auto offset = static_cast<std::size_t>(row * run_.context);
      batches.push_back({run_.tokens.data() + offset, run_.targets.data() + offset});
    }
    if (auto ok = engine_.forward_backward(batches); !ok) return ok;
    if (auto ok = engine_.finish_gradient_synchronization(); !ok) return ok;
    if (step == 0) {
      if (auto ok = compare_gradients(gradients); !ok) return ok;
    }
    const auto report = engine_.optimizer_step();
    if (!report) return tl::unexpected(report.error());
    const auto index = static_cast<std::size_t>(step);
    errors_.push_back(
        {fmt::format("step {} loss", step), relative_error(report->loss, run_.losses[index]), bounds_.loss, true});
    errors_.push_back({fmt::format("step {} gradient norm", step),
                       relative_error(report->gradient_norm.value_or(0), run_.grad_norms[index]), bounds_.norm, true});
    return {};
  }

  Result<void> compare_gradients(std::vector<ReplayError>& gradients) {
    for (const auto& [name, expected] : run_.first_gradients) {
      double largest = 0;
      for (const double value : expected) largest = std::max(largest, std::fabs(value));
      const auto error = kept_error(engine_, name, Engine::Kept::kGradient, engine_.gradient_scale(), expected);
      if (!error) return tl::unexpected(error.error());
      gradients.push_back({"grad0 " + name, *error / largest, bounds_.gradient, true});
    }
    return {};
  }

  Result<std::vector<ReplayError>> over_all_ranks() {
    std::vector<double> mine;
    for (const ReplayError& error : errors_) mine.push_back(error.error);
    const auto all = fsdp::share_numbers(communicator_, mine);
    if (!all) return tl::unexpected(all.error());
    for (std::size_t i = 0; i < all->size(); ++i) {
      ReplayError& error = errors_[i % errors_.size()];
      error.error = worse((*all)[i], error.error);
    }
    return errors_;
  }

  const measure::Trajectory& run_;
  const fsdp::EngineOptions& options_;
  const ReplayBounds bounds_;
  Engine& engine_;
  fsdp::Communicator& communicator_;
  const fsdp::TokenShape shape_;
  std::vector<ReplayError> errors_;
};

}  // namespace

ReplayBounds replay_bounds(const fsdp::EngineOptions& options) {
  using kernels::Dtype;
  if (options.param_dtype == Dtype::kFp32 && options.reduce_dtype == Dtype::kFp32) return {};
  return {1e-2, 0, 0, 0};
}

fsdp::ModelConfig replay_model(const measure::Trajectory& run) {
  fsdp::ModelConfig config;
  config.name = run.name;
  config.vocab = run.vocab;
  config.layers = run.layers;
  config.block.width = run.d_model;
  config.block.ff = run.d_ff;
  config.block.heads = run.heads;
  config.block.eps = static_cast<float>(run.rms_eps);
  config.block.theta = run.rope_theta;
  return config;
}

Result<std::vector<ReplayError>> replay(const measure::Trajectory& run, fsdp::EngineOptions options,
                                        kernels::Device& device, fsdp::Communicator& communicator,
                                        const std::string& attention) {
  const std::int64_t parts = std::int64_t{communicator.world().size} * options.micro_batches;
  if (run.batch % parts != 0) {
    return fail(ErrorKind::kUsage,
                fmt::format("{}: its batch of {} does not divide by {} ranks and {} micro-batches; take a world size "
                            "that divides it",
                            run.name, run.batch, communicator.world().size, options.micro_batches));
  }
  options.report_norm = true;
  options.clip_norm = run.clip;
  options.optimizer = {fsdp::OptimizerKind::kAdamW, run.lr, run.beta1, run.beta2, run.eps, run.weight_decay};
  fsdp::ModelConfig config = replay_model(run);
  config.block.attention = attention;
  const auto model = fsdp::make_model(config);
  if (!model) return tl::unexpected(model.error());
  const fsdp::TokenShape shape{run.batch / parts, run.context};
  auto engine = Engine::make(*model, shape, options, device, communicator);
  if (!engine) return tl::unexpected(engine.error());
  return Replay(run, options, **engine, communicator, shape).go();
}

}  // namespace attnbench::run
