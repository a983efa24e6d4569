// Allocates, uploads, poisons, prepares and launches.
#include "bench/measure/workload.hpp"

#include <algorithm>
#include <utility>

namespace attnbench::measure {
namespace {

using base::Result;
using kernels::Pass;
using kernels::Tensor;

constexpr unsigned char kPoison = 0xff;

std::size_t lse_bytes(const kernels::Problem& p) {
  return static_cast<std::size_t>(p.batch * p.heads * p.seq_q) * sizeof(float);
}

}  // namespace

Result<std::unique_ptr<Workload>> Workload::make(const kernels::KernelInfo& kernel, const kernels::Problem& problem,
                                                 Pass pass, bool deterministic, const Inputs& inputs,
                                                 kernels::Device& device) {
  std::unique_ptr<Workload> workload(new Workload(problem, pass, device));
  if (auto ok = workload->bind(kernel, deterministic, inputs); !ok) return tl::unexpected(ok.error());
  return workload;
}

Result<void*> Workload::allocate(std::size_t bytes) {
  auto buffer = device_.allocate(bytes);
  if (!buffer) return tl::unexpected(buffer.error());
  buffers_.push_back(std::move(*buffer));
  return buffers_.back().data();
}

Result<Tensor> Workload::input(const HostTensor& source) {
  const auto data = allocate(source.bytes.size());
  if (!data) return tl::unexpected(data.error());
  Tensor tensor = source.view;
  tensor.data = *data;
  if (auto ok = device_.upload(*data, source.bytes.data(), source.bytes.size()); !ok) {
    return tl::unexpected(ok.error());
  }
  return tensor;
}

Result<Tensor> Workload::output(const std::array<std::int64_t, 4>& extent) {
  Tensor tensor{nullptr, problem_.dtype, extent, kernels::dense_strides(extent)};
  const std::size_t bytes = static_cast<std::size_t>(tensor.size()) * kernels::size_of(tensor.dtype);
  const auto data = allocate(bytes);
  if (!data) return tl::unexpected(data.error());
  tensor.data = *data;
  if (auto ok = device_.fill_bytes(*data, kPoison, bytes); !ok) return tl::unexpected(ok.error());
  return tensor;
}

Result<void> Workload::bind(const kernels::KernelInfo& kernel, bool deterministic, const Inputs& inputs) {
  // A backward is preceded by a forward on the same buffers.
  const Pass all = pass_ == Pass::kFwd ? Pass::kFwd : Pass::kFwdBwd;
  args_.problem = problem_;
  args_.deterministic = deterministic;
  const auto put = [](Tensor& slot, Result<Tensor> made) -> Result<void> {
    if (!made) return tl::unexpected(made.error());
    slot = *made;
    return {};
  };
  auto ok = put(args_.q, input(inputs.q));
  if (ok) ok = put(args_.k, input(inputs.k));
  if (ok) ok = put(args_.v, input(inputs.v));
  if (ok) ok = put(args_.o, output(query_extent(problem_)));
  if (ok && all != Pass::kFwd) ok = put(args_.dout, input(inputs.dout));
  if (ok && all != Pass::kFwd) ok = put(args_.dq, output(query_extent(problem_)));
  if (ok && all != Pass::kFwd) ok = put(args_.dk, output(key_extent(problem_)));
  if (ok && all != Pass::kFwd) ok = put(args_.dv, output(key_extent(problem_)));
  if (!ok) return ok;

  const kernels::Target target{&device_.facts(), device_.threads(), deterministic};
  const kernels::Footprint own = kernel.footprint(problem_, pass_, target);
  const kernels::Footprint whole = kernel.footprint(problem_, all, target);
  workspace_bytes_ = std::max(own.workspace_bytes, whole.workspace_bytes);
  const auto lse = allocate(lse_bytes(problem_));
  if (!lse) return tl::unexpected(lse.error());
  const auto saved = allocate(std::max(own.saved_bytes, whole.saved_bytes));
  if (!saved) return tl::unexpected(saved.error());
  const auto workspace = allocate(workspace_bytes_);
  if (!workspace) return tl::unexpected(workspace.error());
  args_.lse = static_cast<float*>(*lse);
  args_.saved = *saved;
  args_.workspace = *workspace;
  if (ok = device_.fill_bytes(*lse, kPoison, lse_bytes(problem_)); !ok) return ok;

  auto prepared = kernels::prepare(kernel, args_, all, device_);
  if (!prepared) return tl::unexpected(prepared.error());
  kernel_ = std::move(*prepared);
  return {};
}

Result<void> Workload::first_launch() {
  if (pass_ == Pass::kBwd) {
    if (auto ok = kernels::launch(*kernel_, Pass::kFwd); !ok) return ok;
  }
  if (auto ok = launch(); !ok) return ok;
  return device_.synchronize();
}

Result<Outputs> Workload::download() {
  Outputs outputs;
  Result<void> ok;
  const auto fetch = [&](HostTensor& target, const Tensor& source) {
    if (!ok) return;
    target = HostTensor(source.extent, source.dtype);
    ok = device_.download(target.bytes.data(), source.data, target.bytes.size());
  };
  if (pass_ != Pass::kBwd) {
    fetch(outputs.o, args_.o);
    outputs.lse.resize(lse_bytes(problem_) / sizeof(float));
    if (ok) ok = device_.download(outputs.lse.data(), args_.lse, lse_bytes(problem_));
  }
  if (pass_ != Pass::kFwd) {
    fetch(outputs.dq, args_.dq);
    fetch(outputs.dk, args_.dk);
    fetch(outputs.dv, args_.dv);
  }
  if (!ok) return tl::unexpected(ok.error());
  return outputs;
}

}  // namespace attnbench::measure
