// Layers as loops over elements; the type of an element is looked at for each one.
#include "toy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "bench/base/rng.hpp"
#include "fsdp/local.hpp"
#include "fsdp/solo.hpp"

namespace attnbench::fsdp::tests {
namespace {

using base::Result;

float load(const void* data, Dtype dtype, std::int64_t i) {
  switch (dtype) {
    case Dtype::kFp32:
      return static_cast<const float*>(data)[i];
    case Dtype::kBf16:
      return kernels::to_float(static_cast<const kernels::Bf16*>(data)[i]);
    case Dtype::kFp16:
      return kernels::to_float(static_cast<const kernels::Fp16*>(data)[i]);
  }
  return 0;
}

void store(void* data, Dtype dtype, std::int64_t i, float value) {
  switch (dtype) {
    case Dtype::kFp32:
      static_cast<float*>(data)[i] = value;
      return;
    case Dtype::kBf16:
      static_cast<kernels::Bf16*>(data)[i] = kernels::to_bf16(value);
      return;
    case Dtype::kFp16:
      static_cast<kernels::Fp16*>(data)[i] = kernels::to_fp16(value);
      return;
  }
}

/// What every toy layer knows when it runs.
struct Bound {
  TokenShape shape;
  Numerics numerics;
  LayerMemory memory;

  float get(const void* data, std::int64_t i) const { return load(data, numerics.compute, i); }
  void put(void* data, std::int64_t i, float value) const { store(data, numerics.compute, i, value); }
  void gradient(const GradTarget& target, std::int64_t i, float value) const {
    if (target.data == nullptr) return;
    const float before = target.accumulate ? load(target.data, numerics.gradient, i) : 0.0f;
    store(target.data, numerics.gradient, i, before + value);
  }
};

using Forward = std::function<void(const Bound&, const LayerForward&)>;
using Backward = std::function<void(const Bound&, const LayerBackward&)>;

class ToyBound : public BoundLayer {
 public:
  ToyBound(Bound bound, const Forward& forward, const Backward& backward)
      : bound_(bound), forward_(forward), backward_(backward) {}
  Result<void> forward(const LayerForward& call) override {
    forward_(bound_, call);
    return {};
  }
  Result<void> backward(const LayerBackward& call) override {
    backward_(bound_, call);
    return {};
  }

 private:
  Bound bound_;
  const Forward& forward_;
  const Backward& backward_;
};

class ToyLayer : public Layer {
 public:
  std::string name_;
  std::vector<ParamSpec> params_;
  std::int64_t from = 0, to = 0;         // widths; 0: tokens, loss
  std::int64_t saved_per_token = 0;      // fp32
  std::int64_t workspace_per_token = 0;  // fp32
  bool reads_params = true, reads_input = true;
  Forward forward;
  Backward backward;

  std::string_view name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }
  Result<LayerPlan> plan(const TokenShape& shape, const Numerics&, Device&) const override {
    LayerPlan plan;
    plan.in_elements = shape.tokens() * from;
    plan.out_elements = shape.tokens() * to;
    plan.saved_bytes = static_cast<std::size_t>(shape.tokens() * saved_per_token) * sizeof(float);
    plan.workspace_bytes = static_cast<std::size_t>(shape.tokens() * workspace_per_token) * sizeof(float);
    plan.backward_reads_params = reads_params;
    plan.backward_reads_input = reads_input;
    plan.forward_flop = static_cast<double>(2 * shape.tokens() * from * std::max<std::int64_t>(to, 1));
    plan.backward_flop = 2 * plan.forward_flop;
    return plan;
  }
  Result<std::unique_ptr<BoundLayer>> bind(const TokenShape& shape, const Numerics& numerics, const LayerMemory& memory,
                                           Device&) const override {
    return std::make_unique<ToyBound>(Bound{shape, numerics, memory}, forward, backward);
  }
};

/// y[t, o] = sum over i of x[t, i] w[o, i].
float dot(const Bound& b, const void* x, std::int64_t t, const void* w, std::int64_t o, std::int64_t width) {
  float sum = 0;
  for (std::int64_t i = 0; i < width; ++i) sum += b.get(x, t * width + i) * b.get(w, o * width + i);
  return sum;
}

/// Gradients of y = x W^T, given dy(t, o).
template <typename Dy>
void linear_backward(const Bound& b, const LayerBackward& call, std::int64_t from, std::int64_t to, const Dy& dy) {
  for (std::int64_t o = 0; o < to; ++o) {
    for (std::int64_t i = 0; i < from; ++i) {
      float sum = 0;
      for (std::int64_t t = 0; t < b.shape.tokens(); ++t) sum += dy(t, o) * b.get(call.in, t * from + i);
      b.gradient(call.grads[0], o * from + i, sum);
    }
  }
  if (call.din == nullptr) return;
  for (std::int64_t t = 0; t < b.shape.tokens(); ++t) {
    for (std::int64_t i = 0; i < from; ++i) {
      float sum = 0;
      for (std::int64_t o = 0; o < to; ++o) sum += dy(t, o) * b.get(call.params[0], o * from + i);
      b.put(call.din, t * from + i, sum);
    }
  }
}

}  // namespace

std::unique_ptr<Layer> embedding(const std::string& name, const ToyShape& shape) {
  auto layer = std::make_unique<ToyLayer>();
  layer->name_ = name;
  layer->params_ = {{.name = name + ".weight", .shape = {shape.vocab, shape.width}, .init_std = 0.5f}};
  layer->to = shape.width;
  layer->reads_params = layer->reads_input = false;
  const std::int64_t width = shape.width, vocab = shape.vocab;
  layer->forward = [width](const Bound& b, const LayerForward& call) {
    for (std::int64_t i = 0; i < b.shape.tokens() * width; ++i) {
      b.put(call.out, i, b.get(call.params[0], call.tokens[i / width] * width + i % width));
    }
  };
  layer->backward = [width, vocab](const Bound& b, const LayerBackward& call) {
    for (std::int64_t v = 0; v < vocab; ++v) {
      for (std::int64_t i = 0; i < width; ++i) {
        float sum = 0;
        for (std::int64_t t = 0; t < b.shape.tokens(); ++t) {
          if (call.tokens[t] == v) sum += b.get(call.dout, t * width + i);
        }
        b.gradient(call.grads[0], v * width + i, sum);
      }
    }
  };
  return layer;
}

std::unique_ptr<Layer> scaling(const std::string& name, std::int64_t width) {
  auto layer = std::make_unique<ToyLayer>();
  layer->name_ = name;
  layer->params_ = {{.name = name + ".weight", .shape = {width}, .init_mean = 1.0f, .init_std = 0.1f}};
  layer->from = layer->to = width;
  layer->forward = [width](const Bound& b, const LayerForward& call) {
    for (std::int64_t i = 0; i < b.shape.tokens() * width; ++i) {
      b.put(call.out, i, b.get(call.in, i) * b.get(call.params[0], i % width));
    }
  };
  layer->backward = [width](const Bound& b, const LayerBackward& call) {
    for (std::int64_t w = 0; w < width; ++w) {
      float sum = 0;
      for (std::int64_t t = 0; t < b.shape.tokens(); ++t) {
        sum += b.get(call.dout, t * width + w) * b.get(call.in, t * width + w);
      }
      b.gradient(call.grads[0], w, sum);
    }
    for (std::int64_t i = 0; i < b.shape.tokens() * width; ++i) {
      b.put(call.din, i, b.get(call.dout, i) * b.get(call.params[0], i % width));
    }
  };
  return layer;
}

std::unique_ptr<Layer> linear(const std::string& name, std::int64_t from, std::int64_t to, bool relu) {
  auto layer = std::make_unique<ToyLayer>();
  layer->name_ = name;
  layer->params_ = {{.name = name + ".weight", .shape = {to, from}, .init_std = 0.4f}};
  layer->from = from;
  layer->to = to;
  layer->saved_per_token = relu ? to : 0;
  layer->forward = [=](const Bound& b, const LayerForward& call) {
    for (std::int64_t t = 0; t < b.shape.tokens(); ++t) {
      for (std::int64_t o = 0; o < to; ++o) {
        const float y = dot(b, call.in, t, call.params[0], o, from);
        if (relu) static_cast<float*>(b.memory.saved)[t * to + o] = y > 0 ? 1.0f : 0.0f;
        b.put(call.out, t * to + o, relu ? std::max(y, 0.0f) : y);
      }
    }
  };
  layer->backward = [=](const Bound& b, const LayerBackward& call) {
    linear_backward(b, call, from, to, [&](std::int64_t t, std::int64_t o) {
      const float on = relu ? static_cast<const float*>(b.memory.saved)[t * to + o] : 1.0f;
      return on * b.get(call.dout, t * to + o);
    });
  };
  return layer;
}

std::unique_ptr<Layer> affine(const std::string& name, std::int64_t width, bool freeze_weight, bool freeze_bias) {
  auto layer = std::make_unique<ToyLayer>();
  layer->name_ = name;
  layer->params_ = {{.name = name + ".weight", .shape = {width, width}, .frozen = freeze_weight, .init_std = 0.4f},
                    {.name = name + ".bias", .shape = {width}, .frozen = freeze_bias, .init_std = 0.4f}};
  layer->from = layer->to = width;
  layer->workspace_per_token = 1;
  layer->forward = [=](const Bound& b, const LayerForward& call) {
    for (std::int64_t t = 0; t < b.shape.tokens(); ++t) {
      for (std::int64_t o = 0; o < width; ++o) {
        b.put(call.out, t * width + o, dot(b, call.in, t, call.params[0], o, width) + b.get(call.params[1], o));
      }
    }
  };
  layer->backward = [=](const Bound& b, const LayerBackward& call) {
    linear_backward(b, call, width, width,
                    [&](std::int64_t t, std::int64_t o) { return b.get(call.dout, t * width + o); });
    for (std::int64_t o = 0; o < width; ++o) {
      float sum = 0;
      for (std::int64_t t = 0; t < b.shape.tokens(); ++t) sum += b.get(call.dout, t * width + o);
      b.gradient(call.grads[1], o, sum);
    }
  };
  return layer;
}

std::unique_ptr<Layer> head(const std::string& name, const ToyShape& shape, const std::string& tied_to) {
  auto layer = std::make_unique<ToyLayer>();
  layer->name_ = name;
  layer->params_ = {
      {.name = name + ".weight", .shape = {shape.vocab, shape.width}, .tied_to = tied_to, .init_std = 0.5f}};
  layer->from = shape.width;
  layer->saved_per_token = shape.vocab;
  const std::int64_t width = shape.width, vocab = shape.vocab;
  layer->forward = [=](const Bound& b, const LayerForward& call) {
    double loss = 0;
    for (std::int64_t t = 0; t < b.shape.tokens(); ++t) {
      float* const p = static_cast<float*>(b.memory.saved) + t * vocab;
      for (std::int64_t o = 0; o < vocab; ++o) p[o] = dot(b, call.in, t, call.params[0], o, width);
      const float top = *std::max_element(p, p + vocab);
      double sum = 0;
      for (std::int64_t o = 0; o < vocab; ++o) sum += std::exp(static_cast<double>(p[o] - top));
      loss += std::log(sum) - static_cast<double>(p[call.targets[t]] - top);
      for (std::int64_t o = 0; o < vocab; ++o) {
        p[o] = static_cast<float>(std::exp(static_cast<double>(p[o] - top)) / sum);
      }
    }
    *call.loss = static_cast<float>(loss / static_cast<double>(b.shape.tokens()));
  };
  layer->backward = [=](const Bound& b, const LayerBackward& call) {
    const float scale = call.loss_scale / static_cast<float>(b.shape.tokens());
    linear_backward(b, call, width, vocab, [&](std::int64_t t, std::int64_t o) {
      const float p = static_cast<const float*>(b.memory.saved)[t * vocab + o];
      return scale * (p - (call.targets[t] == o ? 1.0f : 0.0f));
    });
  };
  return layer;
}

std::unique_ptr<Layer> sleeper(const std::string& name, std::int64_t elements, std::chrono::microseconds forward,
                               std::chrono::microseconds backward) {
  auto layer = std::make_unique<ToyLayer>();
  layer->name_ = name;
  layer->params_ = {{.name = name + ".weight", .shape = {elements}}};
  layer->from = layer->to = 1;
  layer->forward = [=](const Bound& b, const LayerForward& call) {
    std::this_thread::sleep_for(forward);
    const bool first = call.in == nullptr, last = call.out == nullptr;
    for (std::int64_t t = 0; t < b.shape.tokens() && !last; ++t) b.put(call.out, t, first ? 1 : b.get(call.in, t));
    if (last) *call.loss = 1;
  };
  layer->backward = [=](const Bound& b, const LayerBackward& call) {
    std::this_thread::sleep_for(backward);
    for (std::int64_t i = 0; i < elements; ++i) b.gradient(call.grads[0], i, 1);
    for (std::int64_t t = 0; t < b.shape.tokens() && call.din != nullptr; ++t) b.put(call.din, t, 1);
  };
  return layer;
}

Model toy_model(const ToyShape& shape, bool tied) {
  Model model;
  model.name = "toy";
  model.layers.push_back(embedding("embedding", shape));
  model.layers.push_back(scaling("norm1", shape.width));
  model.layers.push_back(linear("linear1", shape.width, shape.hidden, true));
  model.layers.push_back(scaling("norm2", shape.hidden));
  model.layers.push_back(linear("linear2", shape.hidden, shape.width));
  model.layers.push_back(head("head", shape, tied ? "embedding.weight" : ""));
  return model;
}

Tokens random_tokens(std::uint64_t seed, std::int64_t batch, std::int64_t seq, std::int64_t vocab) {
  const base::Rng rng(seed, 3);
  Tokens tokens;
  for (std::int64_t i = 0; i < batch * seq; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    tokens.tokens.push_back(static_cast<std::int32_t>(rng.bits(2 * index) % static_cast<std::uint64_t>(vocab)));
    tokens.targets.push_back(static_cast<std::int32_t>(rng.bits(2 * index + 1) % static_cast<std::uint64_t>(vocab)));
  }
  return tokens;
}

std::vector<Result<void>> run_world(int size, const WorldOptions& options,
                                    const std::function<Result<void>(int, Communicator&)>& body) {
  const auto world = make_local_world(size, options.transport);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank) {
    auto transport = join_local(world, rank);
    if (options.link) transport = emulate_link(std::move(transport), *options.link);
    communicators.push_back(size == 1 && !options.link ? make_solo()
                                                       : make_threaded(std::move(transport), options.transport));
  }
  std::vector<Result<void>> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    threads.emplace_back([&, rank, index] { results[index] = body(rank, *communicators[index]); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void expect_world(int size, const WorldOptions& options, const std::function<Result<void>(int, Communicator&)>& body) {
  const auto results = run_world(size, options, body);
  for (int rank = 0; rank < size; ++rank) {
    const auto& result = results[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(result) << "rank " << rank << " of " << size << ": " << (result ? "" : result.error().message);
  }
}

Result<void> write_kept(const Engine& engine, std::string_view name, Engine::Kept what, std::vector<float>& target) {
  std::int64_t begin = 0;
  const auto kept = engine.read_kept(name, what, begin);
  if (!kept) return tl::unexpected(kept.error());
  std::copy(kept->begin(), kept->end(), target.begin() + begin);
  return {};
}

}  // namespace attnbench::fsdp::tests
