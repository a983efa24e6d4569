// Counting of allocations, common to every device.
#include "kernels/device/device.hpp"

#include <algorithm>

namespace attnbench::kernels {

Buffer::~Buffer() {
  if (data_ != nullptr) owner_->release(data_, bytes_);
}

base::Result<Buffer> Device::allocate(std::size_t bytes) {
  if (bytes == 0) return Buffer{};
  auto data = raw_allocate(bytes);
  if (!data) return tl::unexpected(data.error());
  allocated_bytes_ += bytes;
  peak_allocated_bytes_ = std::max(peak_allocated_bytes_, allocated_bytes_);
  return Buffer(this, *data, bytes);
}

void Device::release(void* data, std::size_t bytes) {
  allocated_bytes_ -= bytes;
  raw_free(data, bytes);
}

}  // namespace attnbench::kernels
