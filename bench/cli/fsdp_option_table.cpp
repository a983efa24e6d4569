// The options of the fsdp verb.
#include <algorithm>
#include <string>

#include "bench/cli/option_values.hpp"

namespace attnbench::cli {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using fsdp::Strategy;
using plan::AxisLimits;

using S = SweepOptions;

constexpr AxisLimits kWorlds{1, 65536, false};
constexpr AxisLimits kSizes{1, std::int64_t{1} << 24, false};
constexpr AxisLimits kDepths{0, 1024, false};

/// Words of a list, each from a short table.
template <typename T, std::size_t N>
Result<void> choose_all(std::vector<T>& target, const Setting& setting,
                        const std::array<std::pair<std::string_view, T>, N>& table) {
  const auto items = split_items(setting.value);
  if (!items) return fail(ErrorKind::kUsage, plan::show(items.error(), setting.source, setting.value));
  target.clear();
  for (const Item& item : *items) {
    T value{};
    if (auto ok = choose(value, {std::string(item.text), setting.source}, table); !ok) return ok;
    if (std::find(target.begin(), target.end(), value) == target.end()) target.push_back(value);
  }
  return {};
}

constexpr std::array<std::pair<std::string_view, Strategy>, 3> kStrategies{
    {{"fsdp", Strategy::kFsdp}, {"shard_grad_op", Strategy::kShardGradOp}, {"ddp", Strategy::kDdp}}};
constexpr std::array<std::pair<std::string_view, kernels::Dtype>, 3> kDtypes{
    {{"fp32", kernels::Dtype::kFp32}, {"bf16", kernels::Dtype::kBf16}, {"fp16", kernels::Dtype::kFp16}}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTransports{
    {{"auto", "auto"}, {"local", "local"}, {"mpi", "mpi"}, {"nccl", "nccl"}}};
constexpr std::array<std::pair<std::string_view, fsdp::OptimizerKind>, 2> kOptimizers{
    {{"adamw", fsdp::OptimizerKind::kAdamW}, {"sgd", fsdp::OptimizerKind::kSgd}}};
constexpr std::array<std::pair<std::string_view, bool>, 2> kOrders{{{"ordered", false}, {"ring", true}}};

Result<void> dimension(std::optional<std::int64_t>& target, const Setting& setting) {
  int value = 0;
  auto ok = count(value, setting);
  if (ok) target = value;
  return ok;
}

Result<void> accumulation(S& o, const Setting& setting) {
  static constexpr std::array<std::pair<std::string_view, fsdp::Accumulation>, 2> kModes{
      {{"sharded", fsdp::Accumulation::kSharded}, {"unsharded", fsdp::Accumulation::kUnsharded}}};
  fsdp::Accumulation mode{};
  auto ok = choose(mode, setting, kModes);
  if (ok) o.fsdp.accumulation = mode;
  return ok;
}

Result<void> transport(S& o, const Setting& setting) {
  std::string_view word;
  auto ok = choose(word, setting, kTransports);
  if (ok) o.fsdp.transport = word;
  return ok;
}

Result<void> device(S& o, const Setting& setting) {
  const std::string& word = setting.value;
  const bool numbered = word.size() > 5 && word.compare(0, 5, "cuda:") == 0 &&
                        word.find_first_not_of("0123456789", 5) == std::string::npos;
  if (word != "cpu" && word != "cuda" && !numbered) {
    return fail(ErrorKind::kUsage,
                fmt::format("{}: \"{}\" trains no model; take cpu, cuda or cuda:N", setting.source, word));
  }
  o.fsdp.device = word == "cuda" ? "cuda:0" : word;
  return {};
}

Result<void> zero_or_more(double& target, const Setting& setting) {
  const std::optional<double> value = base::parse_number(setting.value);
  if (!value || *value < 0) {
    return fail(ErrorKind::kUsage,
                fmt::format("{}: \"{}\" is not a number of 0 or more", setting.source, setting.value));
  }
  target = *value;
  return {};
}

Result<void> zero_or_more(int& target, const Setting& setting) {
  std::vector<std::int64_t> values;
  if (auto ok = axis(values, setting, {0, 100'000'000, false}); !ok) return ok;
  target = static_cast<int>(values.front());
  return {};
}

/// "20us,1.5" or "20us,1.5GB/s": latency of a message, then 1e9 bytes per second.
Result<void> link(S& o, const Setting& setting) {
  const std::size_t comma = setting.value.find(',');
  const std::string latency = setting.value.substr(0, comma);
  std::string bandwidth = comma == std::string::npos ? "" : setting.value.substr(comma + 1);
  if (bandwidth.size() > 4 && bandwidth.substr(bandwidth.size() - 4) == "GB/s") {
    bandwidth.resize(bandwidth.size() - 4);
  }
  const bool micro = latency.size() > 2 && latency.substr(latency.size() - 2) == "us";
  std::optional<double> seconds =
      micro ? base::parse_number(latency.substr(0, latency.size() - 2)) : base::parse_seconds(latency);
  if (micro && seconds) *seconds *= 1e-6;
  const std::optional<double> gbps = base::parse_number(bandwidth);
  if (!seconds || *seconds < 0 || !gbps || *gbps <= 0) {
    return fail(ErrorKind::kUsage,
                fmt::format("{}: \"{}\" is not LATENCY,BANDWIDTH; try 20us,1.5 (1.5 GB/s) or 1ms,0.5GB/s",
                            setting.source, setting.value));
  }
  o.fsdp.link = LinkChoice{setting.value, *seconds, *gbps * 1e9};
  return {};
}

constexpr std::string_view kAxes = "Axes (one row for each point of their product)";
constexpr std::string_view kModel = "Model and numerics";
constexpr std::string_view kRanks = "Ranks";
constexpr std::string_view kRun = "Run";

#define APPLY(expression) [](S& o, const Setting& s) -> Result<void> { return expression; }

constexpr OptionSpec option(std::string_view name, std::string_view metavar, std::string_view group,
                            std::string_view help, Result<void> (*apply)(S&, const Setting&)) {
  return {name, "", metavar, group, help, verb::kFsdp, metavar == "LIST", ',', apply};
}

const OptionSpec kTable[] = {
    option("world-size", "LIST", kAxes, "ranks [1,2]", APPLY(axis(o.fsdp.world_size, s, kWorlds))),
    option("strategy", "LIST", kAxes, "fsdp, shard_grad_op, ddp [fsdp]",
           APPLY(choose_all(o.fsdp.strategy, s, kStrategies))),
    option("batch", "LIST", kAxes, "sequences of one rank [4]", APPLY(axis(o.fsdp.batch, s, kSizes))),
    option("seq-len", "LIST", kAxes, "tokens of a sequence; k = 1024 [128]", APPLY(axis(o.fsdp.seq_len, s, kSizes))),
    option("prefetch", "LIST", kAxes, "layers that gathers run ahead; 0: nothing overlaps [2]",
           APPLY(axis(o.fsdp.prefetch, s, kDepths))),

    option("model", "WORD", kModel, "tiny, small, medium, large, xl, 10b [tiny]", APPLY(text(o.fsdp.model, s))),
    option("d-model", "N", kModel, "width [the model's]", APPLY(dimension(o.fsdp.d_model, s))),
    option("d-ff", "N", kModel, "width of the feed-forward part [the model's]", APPLY(dimension(o.fsdp.d_ff, s))),
    option("layers", "N", kModel, "blocks [the model's]", APPLY(dimension(o.fsdp.layers, s))),
    option("heads", "N", kModel, "heads; divides the width [the model's]", APPLY(dimension(o.fsdp.heads, s))),
    option("vocab", "N", kModel, "vocabulary [10000]", APPLY(dimension(o.fsdp.vocab, s))),
    option("attention", "WORD", kModel, "flash, naive, flash:mma ... [auto: flash, naive where flash is coarser]",
           APPLY(text(o.fsdp.attention, s))),
    option("param-dtype", "WORD", kModel, "of gathered weights and activations: fp32, bf16, fp16 [fp32]",
           APPLY(choose(o.fsdp.param_dtype, s, kDtypes))),
    option("reduce-dtype", "WORD", kModel, "of gradients between ranks: fp32, or the above [fp32]",
           APPLY(choose(o.fsdp.reduce_dtype, s, kDtypes))),
    option("checkpoint-activations", "", kModel, "keep the inputs of blocks, repeat their forward in the backward",
           APPLY(toggle(o.fsdp.checkpoint, s))),
    option("micro-batches", "N", kModel, "forward and backward passes of one step [1]",
           APPLY(count(o.fsdp.micro_batches, s))),
    option("accumulation", "WORD", kModel, "sharded: reduce every micro-batch; unsharded: the last [sharded; ddp: not]",
           accumulation),
    option("clip", "NUMBER", kModel, "largest norm of the gradients; 0: any [0]",
           APPLY(zero_or_more(o.fsdp.clip_norm, s))),
    option("optimizer", "WORD", kModel, "adamw, sgd [adamw]", APPLY(choose(o.fsdp.optimizer, s, kOptimizers))),
    option("lr", "NUMBER", kModel, "learning rate [0.001]", APPLY(zero_or_more(o.fsdp.lr, s))),

    option("device", "WORD", kRanks, "cpu; cuda:N, which local ranks share; nccl: cuda, one GPU each [cpu]", device),
    option("transport", "WORD", kRanks, "auto, local (threads), mpi (processes), nccl (GPUs) [auto: mpi, else local]",
           transport),
    option("link", "LAT,BW", kRanks, "emulate a link: latency and GB/s, e.g. 20us,1.5 [none]", link),
    option("reduction", "WORD", kRanks, "ordered: rank 0, 1, 2 ..., equal bits; ring: own part first [ordered]",
           APPLY(choose(o.fsdp.ring_order, s, kOrders))),
    option("deadline", "TIME", kRanks, "of one collective; past it the run ends [60s]",
           APPLY(seconds(o.fsdp.deadline_s, s, false))),
    option("threads", "N", kRanks, "of each rank [processors / ranks]", APPLY(count(o.fsdp.threads, s))),

    option("steps", "N", kRun, "steps that are measured [10]", APPLY(count(o.fsdp.steps, s))),
    option("warmup", "N", kRun, "steps before those [3]", APPLY(zero_or_more(o.fsdp.warmup, s))),
    option("verify", "FILE", kRun, "follow the training run in FILE.safetensors; exit 3 where it is left",
           APPLY(text(o.fsdp.verify, s))),
    // No group: not in the help. The launcher gives it to the ranks that it starts.
    option("worker", "DIR", "", "", APPLY(text(o.fsdp.worker, s))),
};

#undef APPLY

}  // namespace

std::span<const OptionSpec> fsdp_option_table() { return kTable; }

}  // namespace attnbench::cli
