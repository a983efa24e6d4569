// Options of the fsdp verb, some of which share their names with those of a sweep.
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "bench/cli/parse.hpp"

namespace attnbench::cli {
namespace {

using fsdp::Strategy;
using kernels::Dtype;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

FsdpCommand command(std::vector<std::string> words, const Environment& environment = {}) {
  words.insert(words.begin(), "fsdp");
  const auto parsed = parse(words, environment);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? std::get<FsdpCommand>(*parsed) : FsdpCommand{};
}

std::string refusal(std::vector<std::string> words) {
  words.insert(words.begin(), "fsdp");
  const auto parsed = parse(words, {});
  EXPECT_FALSE(parsed);
  return parsed ? "" : parsed.error().message;
}

TEST(ParseFsdp, TakesDryRunAndTryOomWithTheSweep) {
  EXPECT_TRUE(command({"--dry-run"}).dry_run);
  EXPECT_FALSE(command({"--dry-run"}).try_oom);
  EXPECT_TRUE(command({"--try-oom"}).try_oom);
}

TEST(ParseFsdp, WithoutOptionsHasTheDefaults) {
  const FsdpOptions o = command({}).options;
  EXPECT_THAT(o.world_size, IsEmpty()) << "1 and 2, or the world it is started in";
  EXPECT_THAT(o.strategy, ElementsAre(Strategy::kFsdp));
  EXPECT_THAT(o.batch, ElementsAre(4));
  EXPECT_THAT(o.seq_len, ElementsAre(128));
  EXPECT_THAT(o.prefetch, ElementsAre(2));
  EXPECT_EQ(o.model, "tiny");
  EXPECT_EQ(o.transport, "auto");
  EXPECT_EQ(o.param_dtype, Dtype::kFp32);
  EXPECT_FALSE(o.link);
}

TEST(ParseFsdp, EveryAxisAndDimensionReachesItsField) {
  const FsdpOptions o = command({"--world-size", "1,2,4", "--strategy", "fsdp,ddp,shard_grad_op",
                                 "--batch",      "1,2",   "--seq-len",  "512,1k",
                                 "--prefetch",   "0,1,2", "--model",    "small",
                                 "--d-model",    "64",    "--d-ff",     "128",
                                 "--layers",     "3",     "--heads",    "2",
                                 "--vocab",      "100"})
                            .options;
  EXPECT_THAT(o.world_size, ElementsAre(1, 2, 4));
  EXPECT_THAT(o.strategy, ElementsAre(Strategy::kFsdp, Strategy::kDdp, Strategy::kShardGradOp));
  EXPECT_THAT(o.batch, ElementsAre(1, 2));
  EXPECT_THAT(o.seq_len, ElementsAre(512, 1024));
  EXPECT_THAT(o.prefetch, ElementsAre(0, 1, 2));
  EXPECT_EQ(o.model, "small");
  EXPECT_EQ(o.d_model, 64);
  EXPECT_EQ(o.d_ff, 128);
  EXPECT_EQ(o.layers, 3);
  EXPECT_EQ(o.heads, 2);
  EXPECT_EQ(o.vocab, 100);
}

TEST(ParseFsdp, EveryOtherOptionReachesItsField) {
  const FsdpCommand given = command({"--param-dtype",
                                     "bf16",
                                     "--reduce-dtype",
                                     "fp32",
                                     "--checkpoint-activations",
                                     "--micro-batches",
                                     "4",
                                     "--accumulation",
                                     "unsharded",
                                     "--clip",
                                     "0.5",
                                     "--optimizer",
                                     "sgd",
                                     "--lr",
                                     "0.01",
                                     "--transport",
                                     "mpi",
                                     "--reduction",
                                     "ring",
                                     "--deadline",
                                     "2s",
                                     "--threads",
                                     "3",
                                     "--steps",
                                     "7",
                                     "--warmup",
                                     "0",
                                     "--verify",
                                     "x.safetensors",
                                     "--seed",
                                     "9",
                                     "--out",
                                     "dir"});
  const FsdpOptions& o = given.options;
  EXPECT_EQ(o.param_dtype, Dtype::kBf16);
  EXPECT_EQ(o.reduce_dtype, Dtype::kFp32);
  EXPECT_TRUE(o.checkpoint);
  EXPECT_EQ(o.micro_batches, 4);
  EXPECT_EQ(o.accumulation, fsdp::Accumulation::kUnsharded);
  EXPECT_EQ(o.clip_norm, 0.5);
  EXPECT_EQ(o.optimizer, fsdp::OptimizerKind::kSgd);
  EXPECT_EQ(o.lr, 0.01);
  EXPECT_EQ(o.transport, "mpi");
  EXPECT_TRUE(o.ring_order);
  EXPECT_EQ(o.deadline_s, 2);
  EXPECT_EQ(o.threads, 3);
  EXPECT_EQ(o.steps, 7);
  EXPECT_EQ(o.warmup, 0);
  EXPECT_EQ(o.verify, "x.safetensors");
  EXPECT_EQ(given.seed, 9u);
  EXPECT_EQ(given.outputs.out_dir, "dir");
}

TEST(ParseFsdp, ALinkIsLatencyAndBandwidth) {
  const LinkChoice link = *command({"--link", "20us,1.5"}).options.link;
  EXPECT_DOUBLE_EQ(link.latency_s, 20e-6);
  EXPECT_DOUBLE_EQ(link.bandwidth_bytes_per_s, 1.5e9);
  EXPECT_EQ(link.text, "20us,1.5");
  EXPECT_DOUBLE_EQ(command({"--link", "1ms,0.5GB/s"}).options.link->latency_s, 1e-3);
  EXPECT_DOUBLE_EQ(command({"--link", "1ms,0.5GB/s"}).options.link->bandwidth_bytes_per_s, 0.5e9);
  for (const char* wrong : {"20us", "fast,1", "20us,0", "20us,-1", "1ms,", ",1"}) {
    EXPECT_THAT(refusal({"--link", wrong}), HasSubstr("LATENCY,BANDWIDTH")) << wrong;
  }
}

TEST(ParseFsdp, MistakesNameTheNearestWord) {
  EXPECT_THAT(refusal({"--strategy", "ffsdp"}), HasSubstr("did you mean \"fsdp\"?"));
  EXPECT_THAT(refusal({"--transport", "mpii"}), HasSubstr("mpi"));
  EXPECT_THAT(refusal({"--prefetsh", "1"}), HasSubstr("--prefetch"));
  EXPECT_THAT(refusal({"--world-size", "0"}), HasSubstr("--world-size"));
  EXPECT_THAT(refusal({"--kernels", "flash"}), HasSubstr("fsdp has no option --kernels"));
  EXPECT_THAT(refusal({"--clip", "-1"}), HasSubstr("--clip"));
}

TEST(ParseFsdp, ANameThatTwoVerbsHaveMeansItsOwnInEach) {
  const Environment environment{{"ATTNBENCH_SEQ_LEN", "64,32"}, {"ATTNBENCH_BATCH", "3"}};
  const FsdpOptions o = command({}, environment).options;
  EXPECT_THAT(o.seq_len, ElementsAre(64, 32));
  EXPECT_THAT(o.batch, ElementsAre(3));
  const std::vector<std::string> words{"sweep"};
  const auto sweep = parse(words, environment);
  ASSERT_TRUE(sweep);
  EXPECT_THAT(std::get<SweepOptions>(*sweep).axes.seq_len, ElementsAre(64, 32));
  EXPECT_THAT(std::get<SweepOptions>(*sweep).fsdp.seq_len, ElementsAre(128)) << "untouched";
}

TEST(ParseFsdp, AConfigFileHasASectionForIt) {
  const std::string path = testing::TempDir() + "attnbench_fsdp_" + std::to_string(getpid()) + ".toml";
  std::ofstream(path) << "seq-len = 256\n[fsdp]\nworld-size = [1, 3]\nbatch = 2\n[sweep]\nbatch = 16\n";
  const FsdpOptions o = command({"--config", path}).options;
  EXPECT_THAT(o.seq_len, ElementsAre(256));
  EXPECT_THAT(o.world_size, ElementsAre(1, 3));
  EXPECT_THAT(o.batch, ElementsAre(2));
  const std::vector<std::string> words{"sweep", "--config", path};
  const auto sweep = parse(words, {});
  ASSERT_TRUE(sweep) << sweep.error().message;
  EXPECT_THAT(std::get<SweepOptions>(*sweep).axes.batch, ElementsAre(16));
  std::ofstream(path) << "[sweep]\nworld-size = 2\n";
  EXPECT_FALSE(parse(words, {})) << "a sweep has no such key";
  unlink(path.c_str());
}

TEST(ParseFsdp, TheHelpHasEveryOptionButTheOneForRanks) {
  const std::vector<std::string> words{"fsdp", "--help"};
  const auto help = parse(words, {});
  ASSERT_TRUE(help);
  const std::string text = std::get<Printout>(*help).text;
  for (const char* name :
       {"--world-size", "--strategy", "--link", "--verify", "--prefetch", "--transport", "--steps"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
  EXPECT_THAT(text, Not(HasSubstr("--worker")));
  EXPECT_THAT(text, Not(HasSubstr("--kernels")));
}

}  // namespace
}  // namespace attnbench::cli
