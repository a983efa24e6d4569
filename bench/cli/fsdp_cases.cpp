// The axes of the fsdp verb.
#include "bench/cli/fsdp_cases.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/device/cpu_device.hpp"

namespace attnbench::cli {
namespace {

using base::Result;

/// The model's own dimensions, with those that were asked for in their place; the name says so.
Result<fsdp::ModelConfig> model_for(const FsdpOptions& options) {
  auto config = fsdp::model_size(options.model);
  if (!config) return config;
  const auto set = [&](const std::optional<std::int64_t>& value, std::int64_t& target, std::string_view what) {
    if (!value || *value == target) return;
    target = *value;
    config->name += fmt::format("/{}{}", what, *value);
  };
  set(options.d_model, config->block.width, "d");
  set(options.d_ff, config->block.ff, "ff");
  set(options.layers, config->layers, "l");
  set(options.heads, config->block.heads, "h");
  set(options.vocab, config->vocab, "v");
  config->block.attention = options.attention;
  if (options.attention != "auto") config->name += "/" + options.attention;
  if (auto model = fsdp::make_model(*config); !model) return tl::unexpected(model.error());
  return config;
}

/// What all cases share.
run::FsdpCase common_case(const FsdpCommand& command, const fsdp::ModelConfig& model) {
  const FsdpOptions& options = command.options;
  run::FsdpCase c;
  c.device = options.device;
  c.model = model;
  c.engine.param_dtype = options.param_dtype;
  c.engine.reduce_dtype = options.reduce_dtype;
  c.engine.micro_batches = options.micro_batches;
  c.engine.checkpoint = options.checkpoint;
  c.engine.clip_norm = options.clip_norm;
  c.engine.optimizer.kind = options.optimizer;
  c.engine.optimizer.lr = options.lr;
  c.transport.deadline_s = options.deadline_s;
  c.transport.order = options.ring_order ? fsdp::ReductionOrder::kRing : fsdp::ReductionOrder::kOrdered;
  if (options.link) {
    c.link = fsdp::LinkModel{options.link->latency_s, options.link->bandwidth_bytes_per_s};
    c.link_text = options.link->text;
  }
  c.steps = options.steps;
  c.warmup = options.warmup;
  c.seed = command.seed;
  return c;
}

std::string key_of(const run::FsdpCase& c) {
  std::string key =
      fmt::format("fsdp/{}/{}/{}-{}/b{}_s{}x{}/w{}/p{}/t{}", c.model.name, fsdp::to_string(c.engine.strategy),
                  kernels::to_string(c.engine.param_dtype), kernels::to_string(c.engine.reduce_dtype), c.tokens.batch,
                  c.tokens.seq, c.engine.micro_batches, c.world, c.engine.prefetch, c.threads);
  if (c.engine.checkpoint) key += "/ckpt";
  if (c.device != "cpu") key += "/" + c.device;
  if (c.link) key += "/link" + c.link_text;
  return key;
}

std::string number(double value) { return fmt::format("{}", value); }

}  // namespace

Result<std::vector<run::FsdpCase>> fsdp_cases(const FsdpCommand& command) {
  const FsdpOptions& options = command.options;
  const auto model = model_for(options);
  if (!model) return tl::unexpected(model.error());
  const std::int64_t batch_max = *std::max_element(options.batch.begin(), options.batch.end());
  const std::int64_t seq_max = *std::max_element(options.seq_len.begin(), options.seq_len.end());
  constexpr std::int64_t kTokensMax = std::int64_t{1} << 30;
  if (batch_max > kTokensMax / seq_max) {
    return base::fail(
        base::ErrorKind::kUsage,
        fmt::format("--batch {} with --seq-len {} is more than 2^30 tokens of one rank, which is not tried", batch_max,
                    seq_max));
  }
  const int processors = std::max(1, kernels::cpu_facts().cores);
  std::vector<run::FsdpCase> cases;
  for (const fsdp::Strategy strategy : options.strategy) {
    for (const std::int64_t batch : options.batch) {
      for (const std::int64_t seq_len : options.seq_len) {
        for (const std::int64_t prefetch : options.prefetch) {
          for (const std::int64_t world : options.world_size) {
            run::FsdpCase c = common_case(command, *model);
            c.engine.strategy = strategy;
            c.engine.accumulation = options.accumulation.value_or(
                strategy == fsdp::Strategy::kDdp ? fsdp::Accumulation::kUnsharded : fsdp::Accumulation::kSharded);
            c.engine.prefetch = static_cast<int>(prefetch);
            c.tokens = {batch, seq_len};
            c.world = static_cast<int>(world);
            c.threads = options.threads > 0 ? options.threads : std::max(1, processors / c.world);
            if (c.device != "cpu") c.threads = 1;
            c.key = key_of(c);
            cases.push_back(std::move(c));
          }
        }
      }
    }
  }
  return cases;
}

std::vector<std::string> rank_arguments(const FsdpCommand& command, const run::FsdpCase& c,
                                        const std::string& directory) {
  const FsdpOptions& options = command.options;
  std::vector<std::string> arguments{"fsdp", "--worker", directory, "--transport", "mpi"};
  const auto add = [&arguments](const char* name, const std::string& value) {
    arguments.emplace_back(name);
    arguments.push_back(value);
  };
  add("--world-size", std::to_string(c.world));
  add("--strategy", std::string(fsdp::to_string(c.engine.strategy)));
  add("--batch", std::to_string(c.tokens.batch));
  add("--seq-len", std::to_string(c.tokens.seq));
  add("--prefetch", std::to_string(c.engine.prefetch));
  add("--model", options.model);
  const std::pair<const char*, std::int64_t> dimensions[] = {{"--d-model", c.model.block.width},
                                                             {"--d-ff", c.model.block.ff},
                                                             {"--layers", c.model.layers},
                                                             {"--heads", c.model.block.heads},
                                                             {"--vocab", c.model.vocab}};
  for (const auto& [name, value] : dimensions) add(name, std::to_string(value));
  add("--attention", options.attention);
  add("--param-dtype", std::string(kernels::to_string(c.engine.param_dtype)));
  add("--reduce-dtype", std::string(kernels::to_string(c.engine.reduce_dtype)));
  add("--micro-batches", std::to_string(c.engine.micro_batches));
  add("--accumulation", c.engine.accumulation == fsdp::Accumulation::kSharded ? "sharded" : "unsharded");
  add("--clip", number(c.engine.clip_norm));
  add("--optimizer", std::string(fsdp::to_string(c.engine.optimizer.kind)));
  add("--lr", number(c.engine.optimizer.lr));
  add("--reduction", options.ring_order ? "ring" : "ordered");
  add("--deadline", number(c.transport.deadline_s));
  add("--threads", std::to_string(c.threads));
  add("--steps", std::to_string(c.steps));
  add("--warmup", std::to_string(c.warmup));
  add("--seed", std::to_string(c.seed));
  if (c.engine.checkpoint) arguments.emplace_back("--checkpoint-activations");
  if (c.link) add("--link", c.link_text);
  if (!options.verify.empty()) add("--verify", options.verify);
  return arguments;
}

}  // namespace attnbench::cli
