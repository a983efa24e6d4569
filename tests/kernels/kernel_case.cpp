// Tensors, runs and errors for the tests of kernels.
#include "kernel_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>

#include "bench/base/rng.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::kernels {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0xa5;

/// A buffer of exactly `bytes`, poisoned with NaN, aligned as the harness does, with guards on both sides.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes), storage_(bytes + 3 * kGuardBytes, kGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data()) + kGuardBytes;
    begin_ = kGuardBytes + (kGuardBytes - address % kGuardBytes) % kGuardBytes;
    std::memset(data(), 0xff, bytes);
  }

  void* data() { return storage_.data() + begin_; }

  bool guards_untouched() const {
    const auto untouched = [](unsigned char byte) { return byte == kGuard; };
    return std::all_of(storage_.begin(), storage_.begin() + static_cast<std::ptrdiff_t>(begin_), untouched) &&
           std::all_of(storage_.begin() + static_cast<std::ptrdiff_t>(begin_ + bytes_), storage_.end(), untouched);
  }

 private:
  std::size_t bytes_;
  std::size_t begin_ = 0;
  std::vector<unsigned char> storage_;
};

CpuDevice& device_with(int threads) {
  static std::map<int, std::unique_ptr<CpuDevice>> devices;
  auto& device = devices[threads];
  if (!device) device = std::make_unique<CpuDevice>(threads);
  return *device;
}

template <typename T>
T* element(const Tensor& tensor, std::size_t offset) {
  return static_cast<T*>(tensor.data) + offset;
}

void expect_error(const char* name, const std::vector<float>& x, const std::vector<double>& reference, double bound) {
  EXPECT_LE(error_of(x, reference), bound) << name;
}

}  // namespace

HostTensor::HostTensor(const Index4& extent, Dtype dtype, Layout layout) {
  tensor_.extent = extent;
  tensor_.dtype = dtype;
  std::int64_t size = extent[0] * extent[1] * extent[2] * extent[3];
  switch (layout) {
    case Layout::kDense:
      tensor_.stride = dense_strides(extent);
      break;
    case Layout::kPadded: {
      const std::int64_t row = extent[3] + 3;
      tensor_.stride = {extent[2] * extent[1] * row, row, extent[1] * row, 1};
      size = extent[0] * extent[1] * extent[2] * row;
      break;
    }
    case Layout::kTransposed:
      tensor_.stride = {extent[1] * extent[2], extent[2], 1, extent[0] * extent[1] * extent[2]};
      break;
  }
  // Never empty: a tensor of no elements still has an address.
  bytes_.assign(static_cast<std::size_t>(size) * size_of(dtype) + 8, 0xff);
  tensor_.data = bytes_.data();
}

std::size_t HostTensor::offset(const Index4& at) const {
  std::int64_t sum = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) sum += at[axis] * tensor_.stride[axis];
  return static_cast<std::size_t>(sum);
}

void HostTensor::set(const Index4& at, float value) {
  switch (tensor_.dtype) {
    case Dtype::kFp32:
      *element<float>(tensor_, offset(at)) = value;
      return;
    case Dtype::kBf16:
      *element<Bf16>(tensor_, offset(at)) = to_bf16(value);
      return;
    case Dtype::kFp16:
      *element<Fp16>(tensor_, offset(at)) = to_fp16(value);
      return;
  }
}

float HostTensor::get(const Index4& at) const {
  switch (tensor_.dtype) {
    case Dtype::kFp32:
      return *element<float>(tensor_, offset(at));
    case Dtype::kBf16:
      return to_float(*element<Bf16>(tensor_, offset(at)));
    case Dtype::kFp16:
      return to_float(*element<Fp16>(tensor_, offset(at)));
  }
  return 0;
}

void HostTensor::each(const std::function<void(const Index4&)>& body) const {
  const Index4& e = tensor_.extent;
  for (std::int64_t b = 0; b < e[0]; ++b) {
    for (std::int64_t h = 0; h < e[1]; ++h) {
      for (std::int64_t s = 0; s < e[2]; ++s) {
        for (std::int64_t d = 0; d < e[3]; ++d) body({b, h, s, d});
      }
    }
  }
}

void HostTensor::fill(const std::function<float(const Index4&)>& value) {
  each([&](const Index4& at) { set(at, value(at)); });
}

std::vector<float> HostTensor::values() const {
  std::vector<float> all;
  all.reserve(static_cast<std::size_t>(tensor_.size()));
  each([&](const Index4& at) { all.push_back(get(at)); });
  return all;
}

void HostTensor::assign(const std::vector<float>& dense) {
  std::size_t next = 0;
  ASSERT_EQ(dense.size(), static_cast<std::size_t>(tensor_.size()));
  fill([&](const Index4&) { return dense[next++]; });
}

bool HostTensor::gaps_untouched() const {
  std::vector<unsigned char> rest = bytes_;
  const std::size_t width = size_of(tensor_.dtype);
  each([&](const Index4& at) {
    std::fill_n(rest.begin() + static_cast<std::ptrdiff_t>(offset(at) * width), width, 0xff);
  });
  return std::all_of(rest.begin(), rest.end(), [](unsigned char byte) { return byte == 0xff; });
}

Inputs random_inputs(const Problem& p, std::uint64_t seed, Layout layout, double amplitude) {
  const Index4 query{p.batch, p.heads, p.seq_q, p.head_dim};
  const Index4 key{p.batch, p.kv_heads, p.seq_k, p.head_dim};
  Inputs inputs{HostTensor(query, p.dtype, layout), HostTensor(key, p.dtype, layout), HostTensor(key, p.dtype, layout),
                HostTensor(query, p.dtype, layout)};
  std::uint64_t stream = 0;
  for (HostTensor* tensor : {&inputs.q, &inputs.k, &inputs.v, &inputs.dout}) {
    const base::Rng rng(seed, stream++);
    std::uint64_t next = 0;
    tensor->fill([&](const Index4&) { return static_cast<float>(amplitude) * rng.normal(next++); });
  }
  return inputs;
}

Results::Results(const Problem& p, Layout layout)
    : o({p.batch, p.heads, p.seq_q, p.head_dim}, p.dtype, layout),
      dq({p.batch, p.heads, p.seq_q, p.head_dim}, p.dtype, layout),
      dk({p.batch, p.kv_heads, p.seq_k, p.head_dim}, p.dtype, layout),
      dv({p.batch, p.kv_heads, p.seq_k, p.head_dim}, p.dtype, layout) {}

AttentionArgs args_of(const Problem& problem, Pass pass, const Inputs& inputs, const Results& results) {
  AttentionArgs args;
  args.problem = problem;
  args.q = inputs.q.view();
  args.k = inputs.k.view();
  args.v = inputs.v.view();
  args.o = results.o.view();
  if (pass == Pass::kFwd) return args;
  args.dout = inputs.dout.view();
  args.dq = results.dq.view();
  args.dk = results.dk.view();
  args.dv = results.dv.view();
  return args;
}

Outputs run_kernel(const KernelInfo& kernel, const Problem& p, const Inputs& inputs, const RunOptions& options) {
  CpuDevice& device = device_with(options.threads);
  const Target target{&device.facts(), options.threads, false};
  const Footprint size = kernel.footprint(p, options.pass, target);
  Guarded workspace(size.workspace_bytes);
  Guarded saved(size.saved_bytes);
  Guarded lse(static_cast<std::size_t>(p.batch * p.heads * p.seq_q) * sizeof(float));
  const Results results(p, options.layout);
  AttentionArgs args = args_of(p, options.pass, inputs, results);
  args.lse = static_cast<float*>(lse.data());
  if (size.saved_bytes > 0) args.saved = saved.data();
  if (size.workspace_bytes > 0) args.workspace = workspace.data();
  Outputs out;
  auto prepared = prepare(kernel, args, options.pass, device);
  // Thrown, since the caller reads outputs that would not be there.
  if (!prepared) {
    throw std::runtime_error(std::string(kernel.name) + " declined " + text_of(p) + ": " + prepared.error().message);
  }
  for (int i = 0; i < options.launches; ++i) {
    auto ok = launch(**prepared, options.pass);
    if (!ok) throw std::runtime_error(std::string(kernel.name) + " failed: " + ok.error().message);
  }
  EXPECT_TRUE(workspace.guards_untouched()) << "wrote outside its workspace, " << text_of(p);
  EXPECT_TRUE(saved.guards_untouched()) << "wrote outside saved, " << text_of(p);
  EXPECT_TRUE(lse.guards_untouched()) << "wrote outside lse, " << text_of(p);
  for (const HostTensor* tensor : {&results.o, &results.dq, &results.dk, &results.dv}) {
    EXPECT_TRUE(tensor->gaps_untouched()) << "wrote between the rows of an output, " << text_of(p);
  }
  const auto* rows = static_cast<const float*>(lse.data());
  out.lse.assign(rows, rows + p.batch * p.heads * p.seq_q);
  out.o = results.o.values();
  out.variant = (*prepared)->variant();
  if (options.pass == Pass::kFwd) return out;
  out.dq = results.dq.values();
  out.dk = results.dk.values();
  out.dv = results.dv.values();
  return out;
}

double error_of(const std::vector<float>& x, const std::vector<double>& reference) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (x.size() != reference.size()) return kWrong;
  double scale = 1.0;
  for (const double value : reference) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = static_cast<double>(x[i]);
    if (std::isnan(reference[i]) && std::isnan(value)) continue;
    if (value == reference[i]) continue;
    const double difference = std::abs(value - reference[i]);
    if (!std::isfinite(difference)) return kWrong;
    worst = std::max(worst, difference / scale);
  }
  return worst;
}

void expect_like_oracle(const KernelInfo& kernel, const Problem& p, const Inputs& inputs, const RunOptions& options,
                        std::optional<double> bound) {
  SCOPED_TRACE(std::string(kernel.name) + " " + text_of(p));
  const Outputs out = run_kernel(kernel, p, inputs, options);
  const double forward = bound.value_or(default_tolerance(p).forward);
  const double backward = bound.value_or(default_tolerance(p).backward);
  const OracleForward truth = oracle_forward(p, inputs.oracle());
  expect_error("o", out.o, truth.o, forward);
  expect_error("lse", out.lse, truth.lse, forward);
  if (options.pass == Pass::kFwd) return;
  const OracleBackward gradients = oracle_backward(p, inputs.oracle());
  expect_error("dq", out.dq, gradients.dq, backward);
  expect_error("dk", out.dk, gradients.dk, backward);
  expect_error("dv", out.dv, gradients.dv, backward);
}

std::string text_of(const Problem& p) {
  return "B" + std::to_string(p.batch) + " H" + std::to_string(p.heads) + "/" + std::to_string(p.kv_heads) + " Sq" +
         std::to_string(p.seq_q) + " Sk" + std::to_string(p.seq_k) + " D" + std::to_string(p.head_dim) + " " +
         std::string(to_string(p.dtype)) + (p.causal ? " causal" : "") +
         (p.window_left >= 0 ? " window " + std::to_string(p.window_left) : "");
}

std::string kernel_name(const ::testing::TestParamInfo<const KernelInfo*>& info) {
  std::string name = std::string(info.param->name) + "_" + std::string(info.param->variant);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

Problem make_problem(std::int64_t seq_q, std::int64_t seq_k, std::int64_t head_dim, bool causal, Dtype dtype) {
  Problem p;
  p.seq_q = seq_q;
  p.seq_k = seq_k;
  p.head_dim = head_dim;
  p.causal = causal;
  p.dtype = dtype;
  p.scale = default_scale(head_dim);
  return p;
}

}  // namespace attnbench::kernels
