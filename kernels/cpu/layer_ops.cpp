// The operations of layer_ops.hpp on the processor: rows are shared out in blocks whose size depends on the shape
// alone.
#include <algorithm>
#include <string>

#include "kernels/cpu/layer_rows.hpp"
#include "kernels/cpu/libraries.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

constexpr std::int64_t kBlockElements = 16 * 1024;  // 64 KiB of fp32: some µs of work, well above handing out a block
constexpr std::int64_t kGainRows = 64;              // rows whose share of a norm's gain gradient is summed apart

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

Result<void> check_ids(const std::int32_t* ids, std::int64_t rows, std::int64_t vocab, const char* what) {
  for (std::int64_t i = 0; i < rows; ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      return fail(ErrorKind::kFailed, std::string(what) + " " + std::to_string(ids[i]) + " at position " +
                                          std::to_string(i) + " is outside the vocabulary of " + std::to_string(vocab));
    }
  }
  return {};
}

class CpuLayerOps : public LayerOps {
 public:
  explicit CpuLayerOps(CpuDevice& device) : device_(device) {}

  std::size_t rms_norm_scratch_bytes(std::int64_t rows, std::int64_t width) const override {
    return static_cast<std::size_t>(divide_up(rows, kGainRows) * width) * sizeof(float);
  }

  std::size_t embedding_scratch_bytes(std::int64_t rows, std::int64_t vocab) const override {
    return static_cast<std::size_t>(rows + 2 * vocab + 2) * sizeof(std::int32_t);
  }

  Result<void> run(const RmsNorm& call) override {
    return each(call.rows, call.width, layer_rows(call.dtype).rms_norm, call);
  }

  Result<void> run(const RmsNormBackward& call) override {
    const LayerRows& loops = layer_rows(call.dtype);
    const std::int64_t parts = divide_up(call.rows, kGainRows);
    const auto body = [&](std::int64_t part, int) {
      const std::int64_t begin = part * kGainRows;
      float* const sums = static_cast<float*>(call.scratch) + part * call.width;
      loops.rms_norm_backward(call, begin, std::min(call.rows, begin + kGainRows), sums);
    };
    device_.pool().parallel_for(parts, body);
    if (call.dgain.data != nullptr) loops.rms_norm_gain(call, parts, 0, call.width);
    return {};
  }

  Result<void> run(const Rotary& call) override {
    return each(call.seq, call.batch * call.heads * call.head_dim, layer_rows(call.dtype).rotary, call);
  }

  Result<void> run(const SwiGlu& call) override {
    return each(call.rows, 2 * call.width, layer_rows(call.dtype).swiglu, call);
  }

  Result<void> run(const SwiGluBackward& call) override {
    return each(call.rows, 3 * call.width, layer_rows(call.dtype).swiglu_backward, call);
  }

  Result<void> run(const Embedding& call) override {
    if (auto ok = check_ids(call.ids, call.rows, call.vocab, "token"); !ok) return ok;
    return each(
        call.rows, call.width,
        +[](const Embedding& c, std::int64_t begin, std::int64_t end) {
          const std::size_t bytes = static_cast<std::size_t>(c.width) * size_of(c.dtype);
          for (std::int64_t row = begin; row < end; ++row) {
            std::copy_n(static_cast<const unsigned char*>(c.table) + static_cast<std::size_t>(c.ids[row]) * bytes,
                        bytes, static_cast<unsigned char*>(c.out) + static_cast<std::size_t>(row) * bytes);
          }
        },
        call);
  }

  /// Sorts the tokens by word (counting sort, which keeps their order), then sums each word's rows.
  Result<void> run(const EmbeddingBackward& call) override {
    if (auto ok = check_ids(call.ids, call.rows, call.vocab, "token"); !ok) return ok;
    std::int32_t* const first = static_cast<std::int32_t*>(call.scratch);
    std::int32_t* const next = first + call.vocab + 1;
    std::int32_t* const order = next + call.vocab + 1;
    std::fill(first, first + call.vocab + 1, 0);
    for (std::int64_t t = 0; t < call.rows; ++t) ++first[call.ids[t] + 1];
    for (std::int64_t v = 0; v < call.vocab; ++v) first[v + 1] += first[v];
    std::copy(first, first + call.vocab, next);
    for (std::int64_t t = 0; t < call.rows; ++t) order[next[call.ids[t]]++] = static_cast<std::int32_t>(t);
    const LayerRows& loops = layer_rows(call.dtype);
    const std::int64_t block = std::max<std::int64_t>(1, kBlockElements / call.width);
    const auto body = [&](std::int64_t item, int) {
      loops.embedding_backward(call, first, order, item * block, std::min(call.vocab, (item + 1) * block));
    };
    device_.pool().parallel_for(divide_up(call.vocab, block), body);
    return {};
  }

  Result<void> run(const CrossEntropy& call) override {
    if (auto ok = check_ids(call.targets, call.rows, call.vocab, "target"); !ok) return ok;
    auto ok = each(call.rows, call.vocab, layer_rows(call.dtype).cross_entropy, call);
    const LayerRows& loops = layer_rows(call.dtype);
    double sum = 0;
    for (std::int64_t row = 0; row < call.rows; ++row) {
      float logit = 0;
      const std::int64_t place = row * call.vocab + call.targets[row];
      loops.widen(
          static_cast<const unsigned char*>(call.logits) + static_cast<std::size_t>(place) * size_of(call.dtype),
          &logit, 1);
      sum += static_cast<double>(call.lse[row]) - static_cast<double>(logit);
    }
    *call.loss = static_cast<float>(sum / static_cast<double>(call.rows));
    return ok;
  }

  Result<void> run(const CrossEntropyBackward& call) override {
    return each(call.rows, call.vocab, layer_rows(call.dtype).cross_entropy_backward, call);
  }

  Result<void> run(const Relu& call) override { return each(call.elements, 1, layer_rows(call.dtype).relu, call); }

  Result<void> run(const ReluBackward& call) override {
    return each(call.elements, 1, layer_rows(call.dtype).relu_backward, call);
  }

 private:
  /// loop(call, begin, end) over blocks of rows of `width` elements, on all threads.
  template <typename Call>
  Result<void> each(std::int64_t rows, std::int64_t width, void (*loop)(const Call&, std::int64_t, std::int64_t),
                    const Call& call) {
    const std::int64_t block = std::max<std::int64_t>(1, kBlockElements / std::max<std::int64_t>(1, width));
    const auto body = [&](std::int64_t item, int) { loop(call, item * block, std::min(rows, (item + 1) * block)); };
    device_.pool().parallel_for(divide_up(rows, block), body);
    return {};
  }

  CpuDevice& device_;
};

}  // namespace

Result<std::unique_ptr<LayerOps>> make_cpu_layer_ops(Device& device) {
  return std::make_unique<CpuLayerOps>(static_cast<CpuDevice&>(device));
}

}  // namespace attnbench::kernels
