// Checks shared by all kernels, so that none of them has to repeat them.
#include "kernels/kernel.hpp"

#include <cstdint>
#include <utility>

#include "kernels/work.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

std::string shape_of(const std::array<std::int64_t, 4>& extent) {
  std::string text = "[";
  for (std::size_t i = 0; i < extent.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(extent[i]);
  return text + "]";
}

Result<void> check_tensor(const char* name, const Tensor& tensor, const std::array<std::int64_t, 4>& extent,
                          Dtype dtype) {
  if (tensor.extent != extent) {
    return fail(ErrorKind::kUnsupported, std::string(name) + " has shape " + shape_of(tensor.extent) +
                                             ", the problem needs " + shape_of(extent));
  }
  if (tensor.dtype != dtype) {
    return fail(ErrorKind::kUnsupported, std::string(name) + " is " + std::string(to_string(tensor.dtype)) +
                                             ", the problem needs " + std::string(to_string(dtype)));
  }
  if (tensor.data == nullptr && tensor.size() > 0) {
    return fail(ErrorKind::kUnsupported, std::string(name) + " is missing");
  }
  return {};
}

Result<void> check_problem(const KernelInfo& kernel, const Problem& p) {
  if (p.batch < 0 || p.heads < 0 || p.kv_heads < 0 || p.seq_q < 0 || p.seq_k < 0 || p.head_dim <= 0) {
    return fail(ErrorKind::kUnsupported, "an extent of the problem is negative, or head_dim is not positive");
  }
  if (p.kv_heads == 0 ? p.heads != 0 : p.heads % p.kv_heads != 0) {
    return fail(ErrorKind::kUnsupported,
                "heads " + std::to_string(p.heads) + " is not a multiple of kv_heads " + std::to_string(p.kv_heads));
  }
  if (!is_countable(p, kernel.materialises)) {
    return fail(ErrorKind::kUnsupported,
                "a tensor of the problem, or its matrix of scores, has more than 2^44 elements");
  }
  return {};
}

Result<void> check_scratch(const char* name, const void* pointer, std::size_t bytes) {
  if (bytes == 0) return {};
  if (pointer == nullptr) {
    return fail(ErrorKind::kUnsupported,
                std::string(name) + " is missing: this kernel needs " + std::to_string(bytes) + " bytes of it");
  }
  if (reinterpret_cast<std::uintptr_t>(pointer) % 64 != 0) {
    return fail(ErrorKind::kUnsupported, std::string(name) + " must be aligned to 64 bytes");
  }
  return {};
}

/// A kernel whose every launch goes to its own device.
class OnItsDevice : public PreparedKernel {
 public:
  OnItsDevice(std::unique_ptr<PreparedKernel> kernel, Device& device) : kernel_(std::move(kernel)), device_(device) {}

  Result<void> launch(Pass pass) override {
    if (auto ok = device_.make_current(); !ok) return ok;
    return kernel_->launch(pass);
  }

  std::string variant() const override { return kernel_->variant(); }

 private:
  std::unique_ptr<PreparedKernel> kernel_;
  Device& device_;
};

}  // namespace

Result<void> validate(const KernelInfo& kernel, const AttentionArgs& args, Pass pass, const Target& target) {
  const Problem& p = args.problem;
  if (auto ok = check_problem(kernel, p); !ok) return ok;
  const std::array<std::int64_t, 4> query{p.batch, p.heads, p.seq_q, p.head_dim};
  const std::array<std::int64_t, 4> key{p.batch, p.kv_heads, p.seq_k, p.head_dim};
  const struct {
    const char* name;
    const Tensor* tensor;
    const std::array<std::int64_t, 4>* extent;
    bool backward_only;
  } tensors[] = {{"q", &args.q, &query, false}, {"k", &args.k, &key, false},        {"v", &args.v, &key, false},
                 {"o", &args.o, &query, false}, {"dout", &args.dout, &query, true}, {"dq", &args.dq, &query, true},
                 {"dk", &args.dk, &key, true},  {"dv", &args.dv, &key, true}};
  for (const auto& entry : tensors) {
    if (entry.backward_only && pass == Pass::kFwd) continue;
    if (auto ok = check_tensor(entry.name, *entry.tensor, *entry.extent, p.dtype); !ok) return ok;
  }
  if (args.lse == nullptr && p.batch * p.heads * p.seq_q > 0) return fail(ErrorKind::kUnsupported, "lse is missing");
  const Footprint footprint = kernel.footprint(p, pass, target);
  if (auto ok = check_scratch("workspace", args.workspace, footprint.workspace_bytes); !ok) return ok;
  return check_scratch("saved", args.saved, footprint.saved_bytes);
}

Result<std::unique_ptr<PreparedKernel>> prepare(const KernelInfo& kernel, const AttentionArgs& args, Pass pass,
                                                Device& device) {
  const Target target{&device.facts(), device.threads(), args.deterministic};
  if (auto reason = kernel.supports(args.problem, pass, target)) return fail(ErrorKind::kUnsupported, *reason);
  if (auto ok = validate(kernel, args, pass, target); !ok) return tl::unexpected(ok.error());
  if (auto ok = device.make_current(); !ok) return tl::unexpected(ok.error());
  auto prepared = kernel.prepare(args, device);
  if (!prepared) return prepared;
  return std::make_unique<OnItsDevice>(std::move(*prepared), device);
}

Result<void> launch(PreparedKernel& kernel, Pass pass) {
  if (pass != Pass::kBwd) {
    if (auto ok = kernel.launch(Pass::kFwd); !ok) return ok;
  }
  if (pass != Pass::kFwd) return kernel.launch(Pass::kBwd);
  return {};
}

}  // namespace attnbench::kernels
