// The ceiling of matrix products, as the layers would call them.
#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/base/rng.hpp"
#include "bench/run/fsdp_case.hpp"
#include "kernels/catalog.hpp"

namespace attnbench::run {
namespace {

using base::Result;

constexpr int kRuns = 8;
constexpr std::size_t kDrawn = std::size_t{1} << 18;  // values that repeat: drawing all of them takes seconds

/// Random values: a GPU multiplies zeros faster.
Result<kernels::Buffer> draw(std::int64_t side, kernels::Dtype dtype, std::uint64_t stream, kernels::Device& device) {
  const base::Rng rng(1, stream);
  std::vector<unsigned char> bytes(kDrawn * kernels::size_of(dtype));
  for (std::size_t i = 0; i < kDrawn; ++i) {
    const float value = rng.normal(i);
    if (dtype == kernels::Dtype::kFp32) {
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else {
      const std::uint16_t bits =
          dtype == kernels::Dtype::kBf16 ? kernels::to_bf16(value).bits : kernels::to_fp16(value).bits;
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
  }
  const std::size_t total = static_cast<std::size_t>(side * side) * kernels::size_of(dtype);
  auto buffer = device.allocate(total);
  if (!buffer) return buffer;
  for (std::size_t at = 0; at < total; at += bytes.size()) {
    auto ok = device.upload(static_cast<unsigned char*>(buffer->data()) + at, bytes.data(),
                            std::min(bytes.size(), total - at));
    if (!ok) return tl::unexpected(ok.error());
  }
  return buffer;
}

/// Time of one run: by events where the device has them.
Result<double> time_of(kernels::PreparedGemm& product, const void* a, const void* b, void* c, kernels::Device& device,
                       const std::vector<kernels::Mark>& marks) {
  const auto begin = fsdp::Clock::now();
  kernels::Queues* const queues = device.queues();
  Result<void> ok = queues == nullptr ? Result<void>() : queues->record(marks[0], kernels::Queue::kCompute);
  if (ok) ok = product.run(a, b, nullptr, c);
  if (ok && queues != nullptr) ok = queues->record(marks[1], kernels::Queue::kCompute);
  if (ok) ok = device.synchronize();
  if (!ok) return tl::unexpected(ok.error());
  if (queues != nullptr) return queues->seconds_between(marks[0], marks[1]);
  return std::chrono::duration<double>(fsdp::Clock::now() - begin).count();
}

}  // namespace

std::optional<double> gemm_peak_gflops(kernels::Device& device, kernels::Dtype dtype) {
  const auto backend = kernels::find_backend(kernels::to_string(device.facts().kind));
  if (!backend || (*backend)->gemm == nullptr) return std::nullopt;
  const std::int64_t side = device.queues() == nullptr ? 1024 : 4096;
  const kernels::GemmMatrix matrix = kernels::row_major(side, side, side, dtype);
  const kernels::GemmSpec spec{matrix, matrix, matrix};
  const auto scratch = (*backend)->gemm->workspace_bytes(spec, device);
  if (!scratch) return std::nullopt;
  const auto workspace = device.allocate(*scratch);
  const auto a = draw(side, dtype, 1, device), b = draw(side, dtype, 2, device), c = draw(side, dtype, 3, device);
  if (!workspace || !a || !b || !c) return std::nullopt;
  const auto product = (*backend)->gemm->prepare(spec, workspace->data(), device);
  if (!product) return std::nullopt;
  std::vector<kernels::Mark> marks;
  if (kernels::Queues* const queues = device.queues()) {
    auto made = queues->make_marks(2, kernels::MarkKind::kTime);
    if (!made) return std::nullopt;
    marks = std::move(*made);
  }
  double best_s = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto time_s = time_of(**product, a->data(), b->data(), c->data(), device, marks);
    if (!time_s) return std::nullopt;
    best_s = run == 0 ? *time_s : std::min(best_s, *time_s);
  }
  const auto n = static_cast<double>(side);
  return 2.0 * n * n * n / best_s * 1e-9;
}

}  // namespace attnbench::run
