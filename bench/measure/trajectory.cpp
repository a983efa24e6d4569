// Numbers of the metadata, then tensors by the beginning of their names.
#include "bench/measure/trajectory.hpp"

#include <fmt/format.h>

#include <array>

#include "bench/base/units.hpp"

namespace attnbench::measure {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

Result<void> read_number(const SafeTensors& file, const char* name, double& target) {
  const auto found = file.metadata().find(name);
  const auto value = found == file.metadata().end() ? std::nullopt : base::parse_number(found->second);
  if (!value) {
    return fail(ErrorKind::kUnreadable, fmt::format("{}: no training run: {} is missing or is no number in its "
                                                    "metadata",
                                                    file.name(), name));
  }
  target = *value;
  return {};
}

Result<void> read_count(const SafeTensors& file, const char* name, std::int64_t& target) {
  double value = 0;
  if (auto ok = read_number(file, name, value); !ok) return ok;
  target = static_cast<std::int64_t>(value);
  if (target >= 1 && static_cast<double>(target) == value) return {};
  return fail(ErrorKind::kUnreadable, fmt::format("{}: {} is {}, not a count", file.name(), name, value));
}

Result<void> read_metadata(const SafeTensors& file, Trajectory& run) {
  const std::array<std::pair<const char*, std::int64_t*>, 8> counts{{{"vocab", &run.vocab},
                                                                     {"layers", &run.layers},
                                                                     {"d_model", &run.d_model},
                                                                     {"d_ff", &run.d_ff},
                                                                     {"heads", &run.heads},
                                                                     {"batch", &run.batch},
                                                                     {"context", &run.context},
                                                                     {"steps", &run.steps}}};
  for (const auto& [name, target] : counts) {
    if (auto ok = read_count(file, name, *target); !ok) return ok;
  }
  const std::array<std::pair<const char*, double*>, 8> numbers{{{"rms_eps", &run.rms_eps},
                                                                {"rope_theta", &run.rope_theta},
                                                                {"lr", &run.lr},
                                                                {"beta1", &run.beta1},
                                                                {"beta2", &run.beta2},
                                                                {"eps", &run.eps},
                                                                {"weight_decay", &run.weight_decay},
                                                                {"clip", &run.clip}}};
  for (const auto& [name, target] : numbers) {
    if (auto ok = read_number(file, name, *target); !ok) return ok;
  }
  return {};
}

Result<void> read_tokens(const SafeTensors& file, Trajectory& run) {
  const std::array<std::int64_t, 3> shape{run.steps, run.batch, run.context + 1};
  const auto all = file.values("tokens", shape);
  if (!all) return tl::unexpected(all.error());
  for (std::size_t i = 0; i < all->size(); ++i) {
    if ((*all)[i] < 0 || (*all)[i] >= static_cast<double>(run.vocab)) {
      return fail(ErrorKind::kUnreadable,
                  fmt::format("{}: token {} is not in the vocabulary of {}", file.name(), (*all)[i], run.vocab));
    }
    const auto place = static_cast<std::int64_t>(i) % (run.context + 1);
    const auto token = static_cast<std::int32_t>((*all)[i]);
    if (place < run.context) run.tokens.push_back(token);
    if (place > 0) run.targets.push_back(token);
  }
  return {};
}

}  // namespace

Result<Trajectory> read_trajectory(const SafeTensors& file) {
  Trajectory run;
  run.name = file.name();
  if (auto ok = read_metadata(file, run); !ok) return tl::unexpected(ok.error());
  if (auto ok = read_tokens(file, run); !ok) return tl::unexpected(ok.error());
  const std::array<std::int64_t, 1> steps{run.steps};
  for (const auto& [name, target] : {std::pair("losses", &run.losses), std::pair("grad_norms", &run.grad_norms)}) {
    auto values = file.values(name, steps);
    if (!values) return tl::unexpected(values.error());
    *target = std::move(*values);
  }
  for (const auto& [name, tensor] : file.tensors()) {
    const std::string head = name.substr(0, name.find('.'));
    if (head != "init" && head != "grad0" && head != "final") continue;
    auto values = file.values(name, tensor.shape);
    if (!values) return tl::unexpected(values.error());
    const std::string rest = name.substr(head.size() + 1);
    if (head == "init") run.init[rest].assign(values->begin(), values->end());
    if (head == "grad0") run.first_gradients[rest] = std::move(*values);
    if (head == "final") run.last_weights[rest] = std::move(*values);
  }
  if (!run.init.empty()) return run;
  return fail(ErrorKind::kUnreadable, file.name() + ": there is no init.NAME tensor to start from");
}

}  // namespace attnbench::measure
