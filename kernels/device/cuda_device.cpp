// An NVIDIA GPU as a device.
#include "kernels/device/cuda_device.hpp"

#include <algorithm>
#include <cstdio>

#include "kernels/device/cuda_error.hpp"
#include "kernels/device/cuda_stopwatch.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

constexpr std::size_t kLeastFlushBytes = std::size_t{64} << 20;

std::string in_gib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
  return text;
}

/// 13000 -> 13.0, as CUDA writes its versions.
std::string dotted(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char byte[3];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte;
  }
  return text;
}

std::string bus_id(int ordinal) {
  char text[32] = {};
  if (cudaDeviceGetPCIBusId(text, sizeof text, ordinal) != cudaSuccess) return {};
  return text;
}

Result<int> count_devices() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  int driver = 0;
  int runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    return fail(ErrorKind::kAbsent, "no CUDA device: no NVIDIA driver was found (" +
                                        std::string(cudaGetErrorString(code)) + "); install a driver for CUDA " +
                                        dotted(runtime) + " or use --device cpu");
  }
  const std::string reason = code == cudaSuccess ? "the driver sees no GPU" : cudaGetErrorString(code);
  return fail(ErrorKind::kAbsent, "no CUDA device: " + reason + " (driver for CUDA " + dotted(driver) +
                                      ", program built for CUDA " + dotted(runtime) + "); use --device cpu");
}

Result<DeviceFacts> facts_of(int ordinal, const LibraryVersions& libraries) {
  cudaDeviceProp prop{};
  if (auto ok = check_cuda(cudaGetDeviceProperties(&prop, ordinal), "cuda:" + std::to_string(ordinal)); !ok)
    return tl::unexpected(ok.error());
  const NvmlDevice nvml = NvmlDevice::find(bus_id(ordinal));
  DeviceFacts facts;
  facts.kind = DeviceKind::kCuda;
  facts.ordinal = ordinal;
  facts.id = "cuda:" + std::to_string(ordinal);
  facts.name = prop.name;
  facts.memory_total_bytes = prop.totalGlobalMem;
  facts.memory_free_bytes = nvml.memory_free_bytes().value_or(prop.totalGlobalMem);
  facts.last_level_cache_bytes = static_cast<std::uint64_t>(prop.l2CacheSize);
  facts.cores = prop.multiProcessorCount;
  facts.compute_capability = prop.major * 10 + prop.minor;
  facts.isa = "sm_" + std::to_string(facts.compute_capability);
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);
  facts.driver = nvml_driver_version().value_or("CUDA " + dotted(driver));
  facts.uuid = uuid_text(prop.uuid);
  facts.power_limit_w = nvml.power_limit_w();
  facts.clock_max_mhz = nvml.sm_clock_max_mhz();
  facts.libraries = libraries;
  return facts;
}

}  // namespace

Result<std::vector<DeviceFacts>> cuda_facts(const LibraryVersions& libraries) {
  const Result<int> count = count_devices();
  if (!count) return tl::unexpected(count.error());
  std::vector<DeviceFacts> all;
  for (int ordinal = 0; ordinal < *count; ++ordinal) {
    Result<DeviceFacts> facts = facts_of(ordinal, libraries);
    if (!facts) return tl::unexpected(facts.error());
    all.push_back(std::move(*facts));
  }
  return all;
}

Result<std::unique_ptr<Device>> CudaDevice::open(int ordinal, const LibraryVersions& libraries) {
  const Result<int> count = count_devices();
  if (!count) return tl::unexpected(count.error());
  if (ordinal < 0 || ordinal >= *count) {
    return fail(ErrorKind::kUsage, "there is no cuda:" + std::to_string(ordinal) + "; this machine has cuda:0" +
                                       (*count > 1 ? " to cuda:" + std::to_string(*count - 1) : ""));
  }
  if (auto ok = check_cuda(cudaSetDevice(ordinal), "cannot use cuda:" + std::to_string(ordinal)); !ok)
    return tl::unexpected(ok.error());
  Result<DeviceFacts> facts = facts_of(ordinal, libraries);
  if (!facts) return tl::unexpected(facts.error());
  cudaStream_t stream = nullptr;
  if (auto ok = check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot make a stream"); !ok)
    return tl::unexpected(ok.error());
  CudaStream owned(stream);
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) facts->memory_free_bytes = free;
  return std::make_unique<CudaDevice>(std::move(*facts), NvmlDevice::find(bus_id(ordinal)), std::move(owned));
}

CudaDevice::CudaDevice(DeviceFacts facts, NvmlDevice nvml, CudaStream stream)
    : facts_(std::move(facts)), nvml_(nvml), stream_(std::move(stream)) {}

CudaDevice::~CudaDevice() { (void)cudaSetDevice(facts_.ordinal); }

std::uint64_t CudaDevice::memory_free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  (void)cudaSetDevice(facts_.ordinal);
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return free;
}

Result<void> CudaDevice::upload(void* target, const void* source, std::size_t bytes) {
  if (bytes == 0) return {};
  (void)cudaSetDevice(facts_.ordinal);
  auto ok = check_cuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream_.get()), "upload");
  return ok ? synchronize() : ok;
}

Result<void> CudaDevice::download(void* target, const void* source, std::size_t bytes) {
  if (bytes == 0) return {};
  (void)cudaSetDevice(facts_.ordinal);
  auto ok = check_cuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, stream_.get()), "download");
  return ok ? synchronize() : ok;
}

Result<void> CudaDevice::fill_bytes(void* target, unsigned char value, std::size_t bytes) {
  if (bytes == 0) return {};
  (void)cudaSetDevice(facts_.ordinal);
  auto ok = check_cuda(cudaMemsetAsync(target, value, bytes, stream_.get()), "fill");
  return ok ? synchronize() : ok;
}

Result<void> CudaDevice::synchronize() {
  (void)cudaSetDevice(facts_.ordinal);
  return check_cuda(cudaStreamSynchronize(stream_.get()), facts_.id + " failed while running");
}

Result<void> CudaDevice::make_current() { return check_cuda(cudaSetDevice(facts_.ordinal), "cannot use the device"); }

Queues* CudaDevice::queues() {
  if (!queues_) {
    auto made = CudaQueues::make(facts_.ordinal, stream_.get());
    ATTNBENCH_ENSURE(made.has_value(), "a GPU in use makes two more streams");
    queues_ = std::move(*made);
  }
  return queues_.get();
}

Result<void> CudaDevice::prepare_flush() {
  if (flush_) return {};
  const std::size_t bytes = std::max<std::size_t>(kLeastFlushBytes, 2 * facts_.last_level_cache_bytes);
  Result<void*> memory = raw_allocate(bytes);
  if (!memory) return tl::unexpected(memory.error());
  flush_.reset(*memory);
  flush_bytes_ = bytes;
  return {};
}

Result<std::unique_ptr<Stopwatch>> CudaDevice::stopwatch(Launch launch, const SampleSpec& spec) {
  CudaStopwatchParts parts{facts_.ordinal, stream_.get(), nullptr, 0, &nvml_};
  if (spec.cache == CacheState::kCold) {
    if (auto ok = prepare_flush(); !ok) return tl::unexpected(ok.error());
    parts.flush = flush_.get();
    parts.flush_bytes = flush_bytes_;
  }
  return make_cuda_stopwatch(std::move(launch), spec, parts);
}

std::unique_ptr<MemoryProbe> CudaDevice::memory_probe() { return make_cuda_memory_probe(facts_.ordinal, *this); }

Result<void*> CudaDevice::raw_allocate(std::size_t bytes) {
  (void)cudaSetDevice(facts_.ordinal);
  void* data = nullptr;
  const cudaError_t code = cudaMalloc(&data, bytes);
  if (code == cudaSuccess) return data;
  return tl::unexpected(cuda_error(code, facts_.id + ": " + in_gib(bytes) + " (" + std::to_string(bytes) +
                                             " bytes) were asked for and " + in_gib(memory_free_bytes()) +
                                             " are free; try a shorter --seq-len or --kernels flash"));
}

void CudaDevice::raw_free(void* data, std::size_t) {
  (void)cudaSetDevice(facts_.ordinal);
  (void)cudaFree(data);  // waits for launches that may still use it
}

}  // namespace attnbench::kernels
