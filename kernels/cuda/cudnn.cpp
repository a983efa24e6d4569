// cudnn: the vendor's fused attention, as a reference column. The only file that knows cuDNN, whose library is opened
// when a problem is first offered to it.
#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <tuple>
#include <unordered_map>

#include "kernels/cuda/plugin.hpp"
#include "kernels/device/cuda_error.hpp"
#include "kernels/kernel.hpp"

namespace cudnn_frontend {
// What the frontend's dynamic loading takes its functions from.
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace attnbench::kernels {
namespace {

namespace fe = cudnn_frontend;
using base::ErrorKind;
using base::fail;
using base::Result;

enum Uid : std::int64_t { kQ = 1, kK, kV, kO, kLse, kDout, kDq, kDk, kDv };

/// Opens libcudnn.so.9 once; the reason when it is not here.
const std::string& open_problem() {
  static const std::string problem = [] {
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (fe::cudnn_dlhandle != nullptr) return std::string();
    const char* text = dlerror();
    return "cuDNN is not here: " + std::string(text != nullptr ? text : "libcudnn.so.9 cannot be opened");
  }();
  return problem;
}

/// One handle a device for the life of the process; not destroyed at exit, when CUDA may have gone first.
Result<cudnnHandle_t> handle_for(int ordinal) {
  static auto& handles = *new std::map<int, cudnnHandle_t>;
  if (const auto found = handles.find(ordinal); found != handles.end()) return found->second;
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = fe::detail::create_handle(&handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    return fail(ErrorKind::kFailed, std::string("opening cuDNN: ") + fe::detail::get_error_string(status));
  }
  handles.emplace(ordinal, handle);
  return handle;
}

/// A finished plan of one pass, or why there is none.
struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;
  std::size_t workspace_bytes = 0;
  std::string problem;
};

using TensorAttributes = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Shapes of a problem as cuDNN wants them.
class Tensors {
 public:
  explicit Tensors(const Problem& p) : p_(p) {}

  std::vector<std::int64_t> query_extent() const { return {p_.batch, p_.heads, p_.seq_q, p_.head_dim}; }
  std::vector<std::int64_t> key_extent() const { return {p_.batch, p_.kv_heads, p_.seq_k, p_.head_dim}; }
  std::vector<std::int64_t> lse_extent() const { return {p_.batch, p_.heads, p_.seq_q, 1}; }

  static std::vector<std::int64_t> dense(const std::vector<std::int64_t>& extent) {
    const auto strides = dense_strides({extent[0], extent[1], extent[2], extent[3]});
    return {strides.begin(), strides.end()};
  }

  TensorAttributes input(fe::graph::Graph& graph, const char* name, Uid uid,
                         const std::vector<std::int64_t>& extent) const {
    return graph.tensor(
        fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_dim(extent).set_stride(dense(extent)));
  }

  static void output(const TensorAttributes& tensor, Uid uid, const std::vector<std::int64_t>& extent) {
    tensor->set_output(true).set_uid(uid).set_dim(extent).set_stride(dense(extent));
  }

 private:
  const Problem& p_;
};

/// Causal is bottom-right in both passes; cuDNN's left bound counts the diagonal's own key, our window does not.
template <typename Attributes>
void set_mask(Attributes& attributes, const Problem& p) {
  attributes.set_attn_scale(p.scale);
  if (p.causal || p.window_left >= 0) {
    attributes.set_diagonal_alignment(p.seq_q == p.seq_k ? fe::DiagonalAlignment_t::TOP_LEFT
                                                         : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
  }
  if (p.causal) attributes.set_diagonal_band_right_bound(0);
  if (p.window_left >= 0) attributes.set_diagonal_band_left_bound(static_cast<int>(p.window_left) + 1);
}

void describe_forward(fe::graph::Graph& graph, const Problem& p) {
  const Tensors tensors(p);
  auto q = tensors.input(graph, "q", kQ, tensors.query_extent());
  auto k = tensors.input(graph, "k", kK, tensors.key_extent());
  auto v = tensors.input(graph, "v", kV, tensors.key_extent());
  auto attributes = fe::graph::SDPA_attributes().set_name("forward").set_generate_stats(true);
  set_mask(attributes, p);
  auto [o, lse] = graph.sdpa(q, k, v, attributes);
  Tensors::output(o, kO, tensors.query_extent());
  Tensors::output(lse, kLse, tensors.lse_extent());
  lse->set_data_type(fe::DataType_t::FLOAT);
}

void describe_backward(fe::graph::Graph& graph, const Problem& p, bool deterministic) {
  const Tensors tensors(p);
  auto q = tensors.input(graph, "q", kQ, tensors.query_extent());
  auto k = tensors.input(graph, "k", kK, tensors.key_extent());
  auto v = tensors.input(graph, "v", kV, tensors.key_extent());
  auto o = tensors.input(graph, "o", kO, tensors.query_extent());
  auto dout = tensors.input(graph, "dout", kDout, tensors.query_extent());
  auto lse = tensors.input(graph, "lse", kLse, tensors.lse_extent());
  lse->set_data_type(fe::DataType_t::FLOAT);
  auto attributes =
      fe::graph::SDPA_backward_attributes().set_name("backward").set_deterministic_algorithm(deterministic);
  set_mask(attributes, p);
  auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, o, dout, lse, attributes);
  Tensors::output(dq, kDq, tensors.query_extent());
  Tensors::output(dk, kDk, tensors.key_extent());
  Tensors::output(dv, kDv, tensors.key_extent());
}

/// Every step can decline: the first one that does gives the reason.
std::string finish(fe::graph::Graph& graph, cudnnHandle_t handle) {
  if (auto status = graph.validate(); status.is_bad()) return status.get_message();
  if (auto status = graph.build_operation_graph(handle); status.is_bad()) return status.get_message();
  if (auto status = graph.create_execution_plans({fe::HeurMode_t::A}); status.is_bad()) return status.get_message();
  if (auto status = graph.check_support(); status.is_bad()) return status.get_message();
  if (auto status = graph.build_plans(); status.is_bad()) return status.get_message();
  return {};
}

Plan make_plan(const Problem& p, Pass pass, bool deterministic, int ordinal) {
  Plan plan;
  if (auto ok = check_cuda(cudaSetDevice(ordinal), "cuDNN cannot use the device"); !ok) {
    plan.problem = ok.error().message;
    return plan;
  }
  const Result<cudnnHandle_t> handle = handle_for(ordinal);
  if (!handle) {
    plan.problem = handle.error().message;
    return plan;
  }
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(p.dtype == Dtype::kBf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  try {  // the frontend throws where a function of the library is missing
    if (pass == Pass::kFwd) {
      describe_forward(*graph, p);
    } else {
      describe_backward(*graph, p, deterministic);
    }
    plan.problem = finish(*graph, *handle);
    if (plan.problem.empty()) plan.workspace_bytes = static_cast<std::size_t>(graph->get_workspace_size());
  } catch (const std::exception& error) {
    plan.problem = error.what();
  }
  if (plan.problem.empty()) {
    plan.graph = std::move(graph);
  } else {
    plan.problem = "cuDNN " + cudnn_version() + " declines the " + (pass == Pass::kFwd ? "forward: " : "backward: ") +
                   plan.problem;
  }
  return plan;
}

/// Plans cost up to a second, so each is made once; a refusal is remembered too.
const Plan& plan_of(const Problem& p, Pass pass, bool deterministic, int ordinal) {
  using Key = std::tuple<std::array<std::int64_t, 7>, int, bool, float, bool, bool, int>;
  static auto& plans = *new std::map<Key, Plan>;
  const bool backward = pass != Pass::kFwd;
  const Key key{{p.batch, p.heads, p.kv_heads, p.seq_q, p.seq_k, p.head_dim, p.window_left},
                static_cast<int>(p.dtype),
                p.causal,
                p.scale,
                backward,
                backward && deterministic,
                ordinal};
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  return plans.emplace(key, make_plan(p, backward ? Pass::kBwd : Pass::kFwd, deterministic, ordinal)).first->second;
}

int ordinal_of(const Target& target) { return target.device != nullptr ? target.device->ordinal : 0; }

class Cudnn : public PreparedKernel {
 public:
  Cudnn(const AttentionArgs& args, const Device& device, cudnnHandle_t handle, const Plan& forward,
        const Plan* backward)
      : handle_(handle),
        stream_(static_cast<cudaStream_t>(device.stream())),
        workspace_(args.workspace),
        forward_(forward.graph),
        backward_(backward != nullptr ? backward->graph : nullptr),
        inputs_{{kQ, args.q.data}, {kK, args.k.data}, {kV, args.v.data}, {kO, args.o.data}, {kLse, args.lse}} {
    if (backward == nullptr) return;
    gradients_ = inputs_;
    gradients_.insert({{kDout, args.dout.data}, {kDq, args.dq.data}, {kDk, args.dk.data}, {kDv, args.dv.data}});
  }

  Result<void> launch(Pass pass) override {
    const cudnnStatus_t set = fe::detail::set_stream(handle_, stream_);
    if (set != CUDNN_STATUS_SUCCESS) return fail(ErrorKind::kFailed, fe::detail::get_error_string(set));
    const fe::graph::Graph* graph = pass == Pass::kFwd ? forward_.get() : backward_.get();
    if (graph == nullptr) return fail(ErrorKind::kUnsupported, "cudnn was prepared without its backward tensors");
    try {
      auto status = graph->execute(handle_, pass == Pass::kFwd ? inputs_ : gradients_, workspace_);
      if (status.is_bad()) return fail(ErrorKind::kFailed, "cudnn: " + status.get_message());
    } catch (const std::exception& error) {
      return fail(ErrorKind::kFailed, std::string("cudnn: ") + error.what());
    }
    return {};
  }

  std::string variant() const override { return "sdpa+" + cudnn_version(); }

 private:
  cudnnHandle_t handle_;
  cudaStream_t stream_;
  void* workspace_;
  std::shared_ptr<fe::graph::Graph> forward_, backward_;
  std::unordered_map<std::int64_t, void*> inputs_, gradients_;
};

std::optional<std::string> supports(const Problem& p, Pass pass, const Target& target) {
  if (p.dtype == Dtype::kFp32) return "cudnn: dtype fp32 is not fused by cuDNN; bf16 and fp16 are";
  if (p.head_dim % 8 != 0 || p.head_dim > 256) {
    return "cudnn: head_dim " + std::to_string(p.head_dim) + "; cuDNN takes multiples of 8 up to 256";
  }
  if (p.batch * p.heads * p.seq_q == 0 || p.seq_k == 0) return "cudnn: an extent is 0, which cuDNN does not take";
  if (visible_keys(p, 0).count() == 0 || visible_keys(p, p.seq_q - 1).count() == 0) {
    return "cudnn: some queries see no key, for which cuDNN does not promise o = 0 and lse = -inf";
  }
  if (p.window_left >= 0x7fffffff) return "cudnn: the window does not fit in 32 bits";
  if (!open_problem().empty()) return open_problem();
  if (pass != Pass::kBwd) {
    if (const Plan& plan = plan_of(p, Pass::kFwd, false, ordinal_of(target)); !plan.graph) return plan.problem;
  }
  if (pass == Pass::kFwd) return {};
  // A backward needs the o and lse of a forward, so both must be taken.
  if (const Plan& plan = plan_of(p, Pass::kFwd, false, ordinal_of(target)); !plan.graph) return plan.problem;
  const Plan& plan = plan_of(p, Pass::kBwd, target.deterministic, ordinal_of(target));
  if (!plan.graph) return plan.problem;
  return {};
}

Footprint footprint(const Problem& p, Pass pass, const Target& target) {
  Footprint footprint;
  if (supports(p, pass, target)) return footprint;
  footprint.workspace_bytes = plan_of(p, Pass::kFwd, false, ordinal_of(target)).workspace_bytes;
  if (pass != Pass::kFwd) {
    const Plan& backward = plan_of(p, Pass::kBwd, target.deterministic, ordinal_of(target));
    footprint.workspace_bytes = std::max(footprint.workspace_bytes, backward.workspace_bytes);
  }
  return footprint;
}

Result<std::unique_ptr<PreparedKernel>> prepare_cudnn(const AttentionArgs& args, Device& device) {
  const bool backward = args.dq.data != nullptr;
  for (const Tensor* tensor : {&args.q, &args.k, &args.v, &args.o, &args.dout, &args.dq, &args.dk, &args.dv}) {
    if (tensor->data == nullptr) continue;
    const auto dense = dense_strides(tensor->extent);
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (tensor->extent[axis] == 1 || tensor->stride[axis] == dense[axis]) continue;
      return fail(ErrorKind::kUnsupported, "cudnn is offered dense [B, H, S, D] tensors only");
    }
  }
  const int ordinal = device.facts().ordinal;
  const Plan& forward = plan_of(args.problem, Pass::kFwd, false, ordinal);
  if (!forward.graph) return fail(ErrorKind::kUnsupported, forward.problem);
  const Plan* gradient = backward ? &plan_of(args.problem, Pass::kBwd, args.deterministic, ordinal) : nullptr;
  if (gradient != nullptr && !gradient->graph) return fail(ErrorKind::kUnsupported, gradient->problem);
  const Result<cudnnHandle_t> handle = handle_for(ordinal);
  if (!handle) return tl::unexpected(handle.error());
  return std::make_unique<Cudnn>(args, device, *handle, forward, gradient);
}

}  // namespace

std::string cudnn_version() {
  if (!open_problem().empty()) return {};
  const std::size_t version = fe::detail::get_backend_version();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

/// Shapes  q, o, dout, dq [B, H, Sq, D]   k, v, dk, dv [B, Hkv, Sk, D]   lse [B, H, Sq], natural log
/// Needs   bf16 or fp16, head_dim a multiple of 8 up to 256, dense tensors, every query with a key; else cuDNN's reason
/// Memory  what cuDNN's plan asks for
/// Errors  what cuDNN reports; values at masked positions are not promised to stay out of the results
const KernelInfo& cuda_cudnn() {
  static const KernelInfo info = [] {
    KernelInfo cudnn;
    cudnn.name = "cudnn";
    cudnn.variant = "sdpa";
    cudnn.summary = "cuDNN's fused attention, for reference";
    cudnn.source = "cuDNN, through cudnn-frontend's graph of one node";
    cudnn.device = DeviceKind::kCuda;
    cudnn.supports = &supports;
    cudnn.footprint = &footprint;
    cudnn.tolerance = &default_tolerance;
    cudnn.prepare = &prepare_cudnn;
    return cudnn;
  }();
  return info;
}

}  // namespace attnbench::kernels
