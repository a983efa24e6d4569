// Small layers and worlds of threads for tests of the engine: slow, obvious, in every element type.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/communicator.hpp"
#include "fsdp/emulated_link.hpp"
#include "fsdp/engine.hpp"
#include "fsdp/layer.hpp"
#include "fsdp/transport.hpp"

namespace attnbench::fsdp::tests {

struct ToyShape {
  std::int64_t vocab = 11;
  std::int64_t width = 6;
  std::int64_t hidden = 10;
};

/// out = table[token].
std::unique_ptr<Layer> embedding(const std::string& name, const ToyShape& shape);
/// out = in * weight, element by element (one weight per column).
std::unique_ptr<Layer> scaling(const std::string& name, std::int64_t width);
/// out = in W^T, with ReLU on request. W is [to, from].
std::unique_ptr<Layer> linear(const std::string& name, std::int64_t from, std::int64_t to, bool relu = false);
/// out = in W^T + b, each of the two frozen or not.
std::unique_ptr<Layer> affine(const std::string& name, std::int64_t width, bool freeze_weight, bool freeze_bias);
/// Mean cross-entropy of softmax(in W^T); W is [vocab, width], the embedding's own where `tied_to` names it.
std::unique_ptr<Layer> head(const std::string& name, const ToyShape& shape, const std::string& tied_to = "");
/// out = in; sleeps. Has `elements` parameters whose gradient is 1 everywhere.
std::unique_ptr<Layer> sleeper(const std::string& name, std::int64_t elements, std::chrono::microseconds forward,
                               std::chrono::microseconds backward);

/// Embedding, scaling, linear with ReLU, scaling, linear, head.
Model toy_model(const ToyShape& shape = {}, bool tied = false);

/// Tokens and targets of one batch, from a seed.
struct Tokens {
  std::vector<std::int32_t> tokens, targets;
  TokenBatch rows(std::int64_t first, const TokenShape& shape) const {
    return {tokens.data() + first * shape.seq, targets.data() + first * shape.seq};
  }
};
Tokens random_tokens(std::uint64_t seed, std::int64_t batch, std::int64_t seq, std::int64_t vocab);

struct WorldOptions {
  TransportOptions transport;
  std::optional<LinkModel> link;
};

/// Runs `body` on `size` threads, each with the communicator of its rank; what each returned, by rank.
std::vector<base::Result<void>> run_world(
    int size, const WorldOptions& options,
    const std::function<base::Result<void>(int rank, Communicator& communicator)>& body);

/// As run_world, and fails the test with the message of any rank that failed.
void expect_world(int size, const WorldOptions& options,
                  const std::function<base::Result<void>(int rank, Communicator& communicator)>& body);

/// Whole parameter of the model as it stands on all ranks: each rank writes what it keeps into `target`.
base::Result<void> write_kept(const Engine& engine, std::string_view name, Engine::Kept what,
                              std::vector<float>& target);

}  // namespace attnbench::fsdp::tests
