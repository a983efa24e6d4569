// An NVIDIA GPU as a device.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/device/cuda_handles.hpp"
#include "kernels/device/cuda_queues.hpp"
#include "kernels/device/device.hpp"
#include "kernels/device/nvml.hpp"

namespace attnbench::kernels {

using LibraryVersions = std::vector<std::pair<std::string, std::string>>;

/// Facts of every GPU that this process sees. Error kAbsent: none, with the driver's reason.
base::Result<std::vector<DeviceFacts>> cuda_facts(const LibraryVersions& libraries);

/// One GPU with a stream of its own. Every call makes it current first, so that several may be open in one process.
class CudaDevice : public Device {
 public:
  /// Errors: kUsage for an ordinal that does not exist, kAbsent without a GPU.
  static base::Result<std::unique_ptr<Device>> open(int ordinal, const LibraryVersions& libraries);

  CudaDevice(DeviceFacts facts, NvmlDevice nvml, CudaStream stream);
  ~CudaDevice() override;

  const DeviceFacts& facts() const override { return facts_; }
  std::uint64_t memory_free_bytes() const override;
  base::Result<void> upload(void* target, const void* source, std::size_t bytes) override;
  base::Result<void> download(void* target, const void* source, std::size_t bytes) override;
  base::Result<void> fill_bytes(void* target, unsigned char value, std::size_t bytes) override;
  base::Result<void> synchronize() override;
  void set_threads(int) override {}
  int threads() const override { return 1; }
  void* stream() const override { return stream_.get(); }
  base::Result<void> make_current() override;
  Queues* queues() override;
  base::Result<std::unique_ptr<Stopwatch>> stopwatch(Launch launch, const SampleSpec& spec) override;
  std::unique_ptr<MemoryProbe> memory_probe() override;

 protected:
  base::Result<void*> raw_allocate(std::size_t bytes) override;
  void raw_free(void* data, std::size_t bytes) override;

 private:
  base::Result<void> prepare_flush();

  DeviceFacts facts_;
  NvmlDevice nvml_;
  CudaStream stream_;
  std::unique_ptr<CudaQueues> queues_;  // made when they are first asked for
  CudaMemory flush_;                    // outside the count: it belongs to the clock, not to a kernel
  std::size_t flush_bytes_ = 0;
};

}  // namespace attnbench::kernels
