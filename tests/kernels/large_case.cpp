// Address space for problems of more than 2^31 elements.
#include "large_case.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include "bench/base/rng.hpp"
#include "kernels/device/cpu_device.hpp"

namespace attnbench::kernels {

Promised::Promised(std::size_t bytes) : bytes_(in_pages(bytes == 0 ? 1 : bytes)), data_(nullptr) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data_ == MAP_FAILED) throw std::runtime_error("no address space for " + std::to_string(bytes_) + " bytes");
}

Promised::~Promised() { munmap(data_, bytes_); }

void Promised::repeat(std::size_t offset, std::size_t bytes, std::size_t period) const {
  const int file = memfd_create("attnbench-test", MFD_CLOEXEC);
  bool ok = file >= 0 && ftruncate(file, static_cast<off_t>(period)) == 0;
  for (std::size_t at = 0; ok && at < bytes; at += period) {
    void* const place = static_cast<unsigned char*>(data_) + offset + at;
    const std::size_t length = std::min(period, bytes - at);
    ok = mmap(place, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file, 0) == place;
  }
  if (file >= 0) close(file);  // what is mapped stays
  if (!ok) throw std::runtime_error("cannot map the same memory more than once");
}

std::size_t in_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void fill_quickly(float* values, std::int64_t count, std::uint64_t seed) {
  constexpr float kStep = 3.4641016f * 0x1p-24f;  // uniform of width sqrt(12): variance 1
  const std::uint64_t key = base::mix64(seed);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = base::mix64(key ^ static_cast<std::uint64_t>(i));
    values[i] = static_cast<float>(static_cast<std::int32_t>(bits >> 40) - (1 << 23)) * kStep;
  }
}

std::vector<float> values_of(const Tensor& t) {
  const TensorView<float, 4> view = t.as<float>();
  std::vector<float> all;
  for (std::int64_t b = 0; b < t.extent[0]; ++b) {
    for (std::int64_t h = 0; h < t.extent[1]; ++h) {
      for (std::int64_t s = 0; s < t.extent[2]; ++s) {
        for (std::int64_t d = 0; d < t.extent[3]; ++d) {
          all.push_back(view.data[b * t.stride[0] + h * t.stride[1] + s * t.stride[2] + d * t.stride[3]]);
        }
      }
    }
  }
  return all;
}

void run_on(const KernelInfo& kernel, AttentionArgs args, Pass pass, int threads, const Promised* workspace) {
  CpuDevice device(threads);
  const Footprint size = kernel.footprint(args.problem, pass, {&device.facts(), threads, false});
  const Promised saved(size.saved_bytes);
  const std::unique_ptr<Promised> own = workspace ? nullptr : std::make_unique<Promised>(size.workspace_bytes);
  const Promised& scratch = workspace ? *workspace : *own;
  if (scratch.bytes() < size.workspace_bytes) throw std::runtime_error("the workspace given is too small");
  if (size.saved_bytes > 0) args.saved = saved.data();
  if (size.workspace_bytes > 0) args.workspace = scratch.data();
  const auto prepared = prepare(kernel, args, pass, device);
  if (!prepared) throw std::runtime_error(prepared.error().message);
  if (const auto ok = launch(**prepared, pass); !ok) throw std::runtime_error(ok.error().message);
}

}  // namespace attnbench::kernels
