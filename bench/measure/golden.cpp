// Metadata to a problem, tensors to inputs and a reference.
#include "bench/measure/golden.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "kernels/work.hpp"

namespace attnbench::measure {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using kernels::Problem;

constexpr std::int64_t kMostExtent = std::int64_t{1} << 32;  // of a length, as on the command line

template <typename Number>
Result<Number> number(const SafeTensors& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    return fail(ErrorKind::kUnreadable, fmt::format("{} has no {} in its metadata", file.name(), key));
  }
  Number value{};
  const std::string& text = found->second;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) {
    return fail(ErrorKind::kUnreadable, fmt::format("{}: {} is \"{}\", which is not a number", file.name(), key, text));
  }
  return value;
}

Result<Problem> read_problem(const SafeTensors& file) {
  Problem problem;
  const struct {
    const char* key;
    std::int64_t least;
    std::int64_t* target;
  } extents[] = {{"batch", 0, &problem.batch}, {"heads", 1, &problem.heads}, {"kv_heads", 1, &problem.kv_heads},
                 {"seq_q", 0, &problem.seq_q}, {"seq_k", 0, &problem.seq_k}, {"head_dim", 1, &problem.head_dim}};
  for (const auto& extent : extents) {
    const auto value = number<std::int64_t>(file, extent.key);
    if (!value) return tl::unexpected(value.error());
    if (*value < extent.least || *value > kMostExtent) {
      return fail(ErrorKind::kUnreadable, fmt::format("{}: {} is {}, which is not from {} to {}", file.name(),
                                                      extent.key, *value, extent.least, kMostExtent));
    }
    *extent.target = *value;
  }
  const auto causal = number<std::int64_t>(file, "causal");
  if (!causal) return tl::unexpected(causal.error());
  const auto window = number<std::int64_t>(file, "window_left");
  if (!window) return tl::unexpected(window.error());
  const auto scale = number<double>(file, "scale");
  if (!scale) return tl::unexpected(scale.error());
  if (*causal != 0 && *causal != 1) {
    return fail(ErrorKind::kUnreadable, fmt::format("{}: causal is {}, which is not 0 or 1", file.name(), *causal));
  }
  if (*window < -1) {
    return fail(ErrorKind::kUnreadable,
                fmt::format("{}: window_left is {}, which is neither a length nor -1", file.name(), *window));
  }
  problem.causal = *causal == 1;
  problem.window_left = *window;
  problem.scale = static_cast<float>(*scale);
  if (!std::isfinite(problem.scale)) {
    return fail(ErrorKind::kUnreadable, fmt::format("{}: scale is {}, which fp32 cannot hold", file.name(), *scale));
  }
  if (!kernels::is_countable(problem, false)) {
    return fail(ErrorKind::kUnreadable,
                fmt::format("{}: a tensor of that shape has more than 2^44 elements", file.name()));
  }
  if (problem.heads % problem.kv_heads != 0) {
    return fail(ErrorKind::kUnreadable, fmt::format("{}: heads {} is not a multiple of kv_heads {}", file.name(),
                                                    problem.heads, problem.kv_heads));
  }
  return problem;
}

HostTensor rounded(const std::vector<double>& values, const std::array<std::int64_t, 4>& extent, kernels::Dtype dtype) {
  HostTensor tensor(extent, dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_element(tensor, static_cast<std::int64_t>(i), static_cast<float>(values[i]));
  }
  return tensor;
}

}  // namespace

std::string golden_kind(const SafeTensors& file) {
  const auto has = [&](const char* name) { return file.tensors().contains(name); };
  if (has("q") && has("k") && has("v")) return "attention";
  return has("tokens") ? "training" : "";
}

Result<Golden> read_golden(const SafeTensors& file) {
  auto problem = read_problem(file);
  if (!problem) return tl::unexpected(problem.error());
  Golden golden;
  golden.problem = *problem;
  golden.reference.complete = true;
  const auto query = query_extent(golden.problem);
  const auto key = key_extent(golden.problem);
  kernels::OracleForward& forward = golden.reference.forward;
  kernels::OracleBackward& backward = golden.reference.backward;
  const std::span<const std::int64_t> lse(query.data(), 3);
  const struct {
    const char* name;
    std::span<const std::int64_t> shape;
    std::vector<double>* target;
  } tensors[] = {{"q", query, &golden.q},       {"k", key, &golden.k},     {"v", key, &golden.v},
                 {"dout", query, &golden.dout}, {"o", query, &forward.o},  {"lse", lse, &forward.lse},
                 {"dq", query, &backward.dq},   {"dk", key, &backward.dk}, {"dv", key, &backward.dv}};
  for (const auto& tensor : tensors) {
    auto values = file.values(tensor.name, tensor.shape);
    if (!values) return tl::unexpected(values.error());
    *tensor.target = std::move(*values);
  }
  return golden;
}

Inputs golden_inputs(const Golden& golden, kernels::Dtype dtype) {
  Inputs inputs;
  inputs.q = rounded(golden.q, query_extent(golden.problem), dtype);
  inputs.k = rounded(golden.k, key_extent(golden.problem), dtype);
  inputs.v = rounded(golden.v, key_extent(golden.problem), dtype);
  inputs.dout = rounded(golden.dout, query_extent(golden.problem), dtype);
  return inputs;
}

}  // namespace attnbench::measure
