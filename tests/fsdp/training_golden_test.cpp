// Training from the golden files: every loss, the first gradients, the norms and the last weights, in every numerics.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/measure/safetensors.hpp"
#include "kernels/device/cpu_device.hpp"
#include "plain_trainer.hpp"

namespace attnbench::fsdp {
namespace {

struct Golden {
  measure::SafeTensors file;
  ModelConfig config;
  AdamW optimizer;
  TokenShape shape;
  std::int64_t steps = 0;
  std::vector<double> tokens, losses, norms;

  double number(const char* name) const { return std::stod(file.metadata().at(name)); }
  std::int64_t count(const char* name) const { return std::stoll(file.metadata().at(name)); }

  std::vector<double> tensor(const std::string& name) const {
    const auto values = file.values(name, file.tensors().at(name).shape);
    return values.value();
  }

  /// Inputs of a step, or (shift 1) its targets.
  std::vector<std::int32_t> ids(std::int64_t step, std::int64_t shift) const {
    std::vector<std::int32_t> result;
    for (std::int64_t row = 0; row < shape.batch; ++row) {
      for (std::int64_t i = 0; i < shape.seq; ++i) {
        const std::int64_t at = (step * shape.batch + row) * (shape.seq + 1) + i + shift;
        result.push_back(static_cast<std::int32_t>(tokens[static_cast<std::size_t>(at)]));
      }
    }
    return result;
  }
};

Golden load(const std::string& name) {
  auto file =
      measure::SafeTensors::load(std::string(ATTNBENCH_SOURCE_DIR) + "/tests/golden/training_" + name + ".safetensors");
  if (!file) throw std::runtime_error(file.error().message);
  Golden golden{std::move(*file), {}, {}, {}, 0, {}, {}, {}};
  golden.config.name = name;
  golden.config.vocab = golden.count("vocab");
  golden.config.layers = golden.count("layers");
  golden.config.block.width = golden.count("d_model");
  golden.config.block.ff = golden.count("d_ff");
  golden.config.block.heads = golden.count("heads");
  golden.config.block.eps = static_cast<float>(golden.number("rms_eps"));
  golden.config.block.theta = golden.number("rope_theta");
  golden.optimizer = {golden.number("lr"),  golden.number("beta1"),        golden.number("beta2"),
                      golden.number("eps"), golden.number("weight_decay"), golden.number("clip")};
  golden.shape = {golden.count("batch"), golden.count("context")};
  golden.steps = golden.count("steps");
  golden.tokens = golden.tensor("tokens");
  golden.losses = golden.tensor("losses");
  golden.norms = golden.tensor("grad_norms");
  return golden;
}

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> first_gradients, weights;
};

Trained train(const Golden& golden, const Numerics& numerics, int threads, float loss_scale = 1.0f) {
  kernels::CpuDevice device(threads);
  auto model = make_model(golden.config);
  if (!model) throw std::runtime_error(model.error().message);
  auto made = PlainTrainer::make(std::move(*model), golden.shape, numerics, device);
  if (!made) throw std::runtime_error(made.error().message);
  PlainTrainer& trainer = **made;
  for (const auto& [name, values] : trainer.masters()) {
    const std::vector<double> init = golden.tensor("init." + name);
    trainer.master(name).assign(init.begin(), init.end());
  }
  Trained result;
  for (std::int64_t step = 0; step < golden.steps; ++step) {
    const auto loss = trainer.run(golden.ids(step, 0).data(), golden.ids(step, 1).data(), loss_scale);
    if (!loss) throw std::runtime_error(loss.error().message);
    result.losses.push_back(*loss);
    if (step == 0) result.first_gradients = trainer.gradients();
    result.norms.push_back(trainer.update(golden.optimizer));
  }
  result.weights = trainer.masters();
  return result;
}

/// Largest difference to the tensors PREFIX.NAME of the file, each relative to its largest value where `relative`.
double worst_error(const Golden& golden, const std::string& prefix,
                   const std::map<std::string, std::vector<float>>& tensors, bool relative) {
  double worst = 0;
  for (const auto& [name, values] : tensors) {
    const std::vector<double> expected = golden.tensor(prefix + "." + name);
    EXPECT_EQ(expected.size(), values.size()) << name;
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      const double here = std::abs(double{values[i]} - expected[i]);
      difference = here >= difference || std::isnan(here) ? here : difference;
    }
    const double error = relative ? difference / largest : difference;
    EXPECT_FALSE(std::isnan(error)) << name;
    worst = std::max(worst, error);
  }
  return worst;
}

class Training : public ::testing::TestWithParam<const char*> {};

void expect_parity(const Golden& golden, const Trained& trained) {
  ASSERT_EQ(trained.losses.size(), golden.losses.size());
  ASSERT_EQ(trained.weights.size(), static_cast<std::size_t>(3 + 9 * golden.config.layers));
  double loss_error = 0;
  for (std::size_t i = 0; i < golden.losses.size(); ++i) {
    EXPECT_NEAR(trained.losses[i], golden.losses[i], 1e-5 * golden.losses[i]) << "step " << i;
    EXPECT_NEAR(trained.norms[i], golden.norms[i], 1e-4 * golden.norms[i]) << "step " << i;
    loss_error = std::max(loss_error, std::abs(trained.losses[i] / golden.losses[i] - 1));
  }
  const double gradient_error = worst_error(golden, "grad0", trained.first_gradients, true);
  const double weight_error = worst_error(golden, "final", trained.weights, false);
  EXPECT_LE(gradient_error, 1e-5);
  EXPECT_LE(weight_error, 2e-4);
  ::testing::Test::RecordProperty("loss_error", std::to_string(loss_error));
  std::printf("loss %.2g relative, first gradients %.2g relative, last weights %.2g absolute\n", loss_error,
              gradient_error, weight_error);
}

TEST_P(Training, FollowsTheFileInFp32) {
  const Golden golden = load(GetParam());
  expect_parity(golden, train(golden, {}, 2));
}

TEST_P(Training, FollowsTheFileWithCheckpointedActivations) {
  const Golden golden = load(GetParam());
  Numerics numerics;
  numerics.checkpoint = true;
  expect_parity(golden, train(golden, numerics, 1));
}

TEST_P(Training, GivesTheSameBitsOnAnyNumberOfThreadsAndWithCheckpoints) {
  const Golden golden = load(GetParam());
  Numerics checkpointed;
  checkpointed.checkpoint = true;
  const Trained one = train(golden, {}, 1), three = train(golden, {}, 3), again = train(golden, checkpointed, 1);
  EXPECT_EQ(one.losses, three.losses);
  EXPECT_EQ(one.weights, three.weights);
  EXPECT_EQ(one.losses, again.losses);
  EXPECT_EQ(one.weights, again.weights);
}

TEST_P(Training, StaysWithinAHundredthOfTheLossesIn16Bits) {
  const Golden golden = load(GetParam());
  for (const Dtype compute : {Dtype::kBf16, Dtype::kFp16}) {
    for (const Dtype gradient : {Dtype::kFp32, compute}) {
      Numerics numerics;
      numerics.compute = compute;
      numerics.gradient = gradient;
      const Trained trained = train(golden, numerics, 2, compute == Dtype::kFp16 ? 1024.0f : 1.0f);
      double worst = 0;
      for (std::size_t i = 0; i < golden.losses.size(); ++i) {
        worst = std::max(worst, std::abs(trained.losses[i] / golden.losses[i] - 1));
        EXPECT_NEAR(trained.losses[i], golden.losses[i], 1e-2 * golden.losses[i]) << "step " << i;
      }
      std::printf("%s, gradients %s: losses %.2g relative\n", std::string(to_string(compute)).c_str(),
                  std::string(to_string(gradient)).c_str(), worst);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Training, ::testing::Values("small", "clip"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace attnbench::fsdp
