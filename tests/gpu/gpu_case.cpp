// One way to run a CUDA kernel on tensors of the host, and the oracle's answer beside it.
#include "tests/gpu/gpu_case.hpp"

#include <algorithm>
#include <map>
#include <memory>

namespace attnbench::kernels {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0xa5;

Device* used_instead = nullptr;

struct OpenGpu {
  std::unique_ptr<Device> device;
  std::string reason;
};

const OpenGpu& open_gpu() {
  static const OpenGpu opened = [] {
    OpenGpu gpu;
    const auto backend = cuda_backend();
    if (!backend) {
      gpu.reason = backend.error().message;
      return gpu;
    }
    auto device = (*backend)->open(0);
    if (device) {
      gpu.device = std::move(*device);
    } else {
      gpu.reason = device.error().message;
    }
    return gpu;
  }();
  return opened;
}

void must(const base::Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

/// Bytes from the first element of a tensor to the end of its last.
std::size_t span_bytes(const Tensor& t) {
  if (t.size() == 0) return 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < 4; ++i) last += (t.extent[i] - 1) * t.stride[i];
  return static_cast<std::size_t>(last + 1) * size_of(t.dtype);
}

/// A tensor of the host and its twin on the device.
struct Twin {
  explicit Twin(const Tensor& host) : host_view(host), block(span_bytes(host)) {
    must(gpu()->upload(block.data(), host.data, block.bytes()));
  }
  Tensor view() const {
    Tensor t = host_view;
    t.data = block.bytes() > 0 ? block.data() : nullptr;
    return t;
  }
  void download() const { must(gpu()->download(host_view.data, block.data(), block.bytes())); }

  Tensor host_view;
  GpuBlock block;
};

struct Truth {
  OracleForward forward;
  OracleBackward backward;
};

/// FNV-1a over the bytes of the inputs: the oracle's answers are kept by problem and inputs.
std::uint64_t digest(const Inputs& inputs) {
  std::uint64_t hash = 14695981039346656037u;
  for (const HostTensor* tensor : {&inputs.q, &inputs.k, &inputs.v, &inputs.dout}) {
    const auto* bytes = static_cast<const unsigned char*>(tensor->view().data);
    for (std::size_t i = 0; i < span_bytes(tensor->view()); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  }
  return hash;
}

const Truth& truth_of(const Problem& p, const Inputs& inputs) {
  static std::map<std::string, Truth> known;
  static ThreadPool pool(8);
  const std::string key = text_of(p) + " " + std::to_string(p.scale) + " " + std::to_string(digest(inputs));
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  Truth truth{oracle_forward(p, inputs.oracle(), &pool), oracle_backward(p, inputs.oracle(), &pool)};
  return known.emplace(key, std::move(truth)).first->second;
}

base::Result<void> launch_all(PreparedKernel& kernel, const GpuOptions& options) {
  const Launch work = [&] {
    if (options.before) options.before();
    return launch(kernel, options.pass);
  };
  if (options.in_graph) {
    auto stopwatch = gpu()->stopwatch(work, {CacheState::kHot, Timing::kGraph});
    if (!stopwatch) return tl::unexpected(stopwatch.error());
    const auto sample = (*stopwatch)->take();
    if (!sample) return tl::unexpected(sample.error());
    return {};
  }
  for (int i = 0; i < options.launches; ++i) {
    if (auto ok = work(); !ok) return ok;
  }
  return gpu()->synchronize();
}

}  // namespace

Device* gpu() { return used_instead != nullptr ? used_instead : open_gpu().device.get(); }
const std::string& why_no_gpu() { return open_gpu().reason; }

UseGpu::UseGpu(Device& device) { used_instead = &device; }
UseGpu::~UseGpu() { used_instead = nullptr; }

GpuBlock::GpuBlock(std::size_t bytes) : bytes_(bytes) {
  auto buffer = gpu()->allocate((bytes + 2 * kGuardBytes + 255) / 256 * 256);
  if (!buffer) throw std::runtime_error(buffer.error().message);
  buffer_ = std::move(*buffer);
  must(gpu()->fill_bytes(buffer_.data(), kGuard, buffer_.bytes()));
  must(gpu()->fill_bytes(data(), 0xff, bytes));
}

void* GpuBlock::data() const { return static_cast<char*>(buffer_.data()) + kGuardBytes; }

bool GpuBlock::guards_untouched() const {
  std::vector<unsigned char> before(kGuardBytes);
  std::vector<unsigned char> after(buffer_.bytes() - kGuardBytes - bytes_);
  must(gpu()->download(before.data(), buffer_.data(), before.size()));
  must(gpu()->download(after.data(), static_cast<char*>(data()) + bytes_, after.size()));
  const auto untouched = [](unsigned char byte) { return byte == kGuard; };
  return std::all_of(before.begin(), before.end(), untouched) && std::all_of(after.begin(), after.end(), untouched);
}

std::optional<Outputs> run_on_gpu(const KernelInfo& kernel, const Problem& p, const Inputs& inputs,
                                  const GpuOptions& options, std::string* declined) {
  const Target target{&gpu()->facts(), 1, options.deterministic};
  const auto decline = [&](const std::string& reason) {
    EXPECT_FALSE(reason.empty()) << kernel.name << " declines " << text_of(p) << " without a reason";
    if (declined != nullptr) *declined = reason;
    return std::nullopt;
  };
  if (auto reason = kernel.supports(p, options.pass, target)) return decline(*reason);
  const Footprint size = kernel.footprint(p, options.pass, target);
  const bool backward = options.pass != Pass::kFwd;
  const Twin q(inputs.q.view()), k(inputs.k.view()), v(inputs.v.view()), dout(inputs.dout.view());
  HostTensor host_o(inputs.q.view().extent, p.dtype, options.layout);
  HostTensor host_dq(inputs.q.view().extent, p.dtype, options.layout);
  HostTensor host_dk(inputs.k.view().extent, p.dtype, options.layout);
  HostTensor host_dv(inputs.k.view().extent, p.dtype, options.layout);
  const Twin o(host_o.view()), dq(host_dq.view()), dk(host_dk.view()), dv(host_dv.view());
  const GpuBlock workspace(size.workspace_bytes), saved(size.saved_bytes);
  const GpuBlock lse(static_cast<std::size_t>(p.batch * p.heads * p.seq_q) * sizeof(float));
  AttentionArgs args;
  args.problem = p;
  args.q = q.view();
  args.k = k.view();
  args.v = v.view();
  args.o = o.view();
  args.lse = static_cast<float*>(lse.data());
  if (backward) {
    args.dout = dout.view();
    args.dq = dq.view();
    args.dk = dk.view();
    args.dv = dv.view();
  }
  if (size.saved_bytes > 0) args.saved = saved.data();
  if (size.workspace_bytes > 0) args.workspace = workspace.data();
  args.deterministic = options.deterministic;
  if (options.before) options.before();
  auto prepared = prepare(kernel, args, options.pass, *gpu());
  if (!prepared && prepared.error().kind == base::ErrorKind::kUnsupported) return decline(prepared.error().message);
  if (!prepared) throw std::runtime_error(prepared.error().message);
  must(launch_all(**prepared, options));
  for (const GpuBlock* block :
       {&q.block, &k.block, &v.block, &o.block, &dq.block, &dk.block, &dv.block, &workspace, &saved, &lse}) {
    EXPECT_TRUE(block->guards_untouched()) << kernel.name << " wrote outside its memory, " << text_of(p);
  }
  Outputs out;
  for (const Twin* twin : {&o, &dq, &dk, &dv}) twin->download();
  for (const HostTensor* tensor : {&host_o, &host_dq, &host_dk, &host_dv}) {
    EXPECT_TRUE(tensor->gaps_untouched()) << kernel.name << " wrote between rows, " << text_of(p);
  }
  out.lse.resize(lse.bytes() / sizeof(float));
  must(gpu()->download(out.lse.data(), lse.data(), lse.bytes()));
  out.o = host_o.values();
  out.variant = (*prepared)->variant();
  if (backward) {
    out.dq = host_dq.values();
    out.dk = host_dk.values();
    out.dv = host_dv.values();
  }
  return out;
}

double gpu_bound(const KernelInfo& kernel, const Problem& p) {
  const Tolerance stated = kernel.tolerance(p);
  const double allowed = p.dtype == Dtype::kFp32 ? 5e-5 : default_tolerance(p).forward;
  EXPECT_LE(std::max(stated.forward, stated.backward), allowed) << kernel.name << " asks for too much tolerance";
  return std::min(std::max(stated.forward, stated.backward), allowed);
}

bool expect_like_oracle_on_gpu(const KernelInfo& kernel, const Problem& p, const Inputs& inputs,
                               const GpuOptions& options) {
  SCOPED_TRACE(std::string(kernel.name) + ":" + std::string(kernel.variant) + " " + text_of(p));
  const auto out = run_on_gpu(kernel, p, inputs, options);
  if (!out) return false;
  const Truth& truth = truth_of(p, inputs);
  const double bound = gpu_bound(kernel, p);
  EXPECT_LE(error_of(out->o, truth.forward.o), bound) << "o";
  EXPECT_LE(error_of(out->lse, truth.forward.lse), bound) << "lse";
  if (options.pass == Pass::kFwd) return true;
  EXPECT_LE(error_of(out->dq, truth.backward.dq), bound) << "dq";
  EXPECT_LE(error_of(out->dk, truth.backward.dk), bound) << "dk";
  EXPECT_LE(error_of(out->dv, truth.backward.dv), bound) << "dv";
  return true;
}

std::vector<Dtype> GpuKernel::taken(std::initializer_list<Dtype> dtypes) const {
  const Target target{&gpu()->facts(), 1, false};
  std::vector<Dtype> taken;
  for (const Dtype dtype : dtypes) {
    if (!kernel().supports(make_problem(64, 64, 64, false, dtype), Pass::kFwdBwd, target)) taken.push_back(dtype);
  }
  return taken;
}

std::vector<const KernelInfo*> gpu_kernels() {
  const auto backend = cuda_backend();
  if (!backend) return {};
  const auto table = (*backend)->kernels();
  return {table.begin(), table.end()};
}

std::vector<const KernelInfo*> own_gpu_kernels() {
  std::vector<const KernelInfo*> own = gpu_kernels();
  std::erase_if(own, [](const KernelInfo* kernel) { return kernel->name == "cudnn"; });
  return own;
}

std::vector<const KernelInfo*> forward_gpu_kernels() {
  std::vector<const KernelInfo*> hopper = gpu_kernels();
  std::erase_if(hopper, [](const KernelInfo* kernel) { return kernel->variant != "wgmma"; });
  return hopper;
}

}  // namespace attnbench::kernels
