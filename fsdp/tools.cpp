// Finds what a device offers to layers.
#include "fsdp/tools.hpp"

#include <string>

#include "kernels/catalog.hpp"

namespace attnbench::fsdp {

using base::ErrorKind;
using base::fail;
using base::Result;

Result<Tools> Tools::of(Device& device) {
  const std::string kind(to_string(device.facts().kind));
  const auto backend = kernels::find_backend(kind);
  if (!backend) return tl::unexpected(backend.error());
  if ((*backend)->gemm == nullptr || (*backend)->layer_ops == nullptr) {
    return fail(ErrorKind::kAbsent, "the " + kind + " backend has no layers of a model; use --device cpu");
  }
  auto ops = (*backend)->layer_ops(device);
  if (!ops) return tl::unexpected(ops.error());
  return Tools{(*backend)->gemm, std::move(*ops)};
}

namespace {

struct Wanted {
  std::string_view name, variant;
  bool exact = false;  // as the dtype allows
};

Result<const kernels::KernelInfo*> find(const Wanted& wanted, const kernels::Problem& problem, Device& device,
                                        bool deterministic) {
  const auto backend = kernels::find_backend(to_string(device.facts().kind));
  if (!backend) return tl::unexpected(backend.error());
  const kernels::Target target{&device.facts(), device.threads(), deterministic};
  std::string reason = "there is no such kernel on " + device.facts().id;
  for (const kernels::KernelInfo* const kernel : (*backend)->kernels()) {
    if (kernel->name != wanted.name || (!wanted.variant.empty() && kernel->variant != wanted.variant)) continue;
    const auto refusal = kernel->supports(problem, kernels::Pass::kFwdBwd, target);
    const bool coarse =
        wanted.exact && kernel->tolerance(problem).backward > kernels::default_tolerance(problem).backward;
    if (!refusal && !coarse) return kernel;
    reason = refusal ? *refusal : "it is less exact than " + std::string(to_string(problem.dtype));
  }
  return fail(ErrorKind::kUnsupported, "attention '" + std::string(wanted.name) + "': " + reason);
}

}  // namespace

Result<const kernels::KernelInfo*> find_attention(std::string_view word, const kernels::Problem& problem,
                                                  Device& device, bool deterministic) {
  if (word == "auto") {
    auto flash = find({"flash", "", true}, problem, device, deterministic);
    return flash ? flash : find({"naive", "", true}, problem, device, deterministic);
  }
  const std::size_t colon = word.find(':');
  const std::string_view variant = colon == std::string_view::npos ? std::string_view() : word.substr(colon + 1);
  return find({word.substr(0, colon), variant}, problem, device, deterministic);
}

}  // namespace attnbench::fsdp
