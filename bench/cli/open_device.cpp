// From the id of a device to the device, through the catalog.
#include "bench/cli/open_device.hpp"

#include <charconv>

#include "kernels/catalog.hpp"

namespace attnbench::cli {

base::Result<std::unique_ptr<kernels::Device>> open_device(const std::string& id) {
  const std::size_t colon = id.find(':');
  const auto backend = kernels::find_backend(id.substr(0, colon));
  if (!backend) return tl::unexpected(backend.error());
  int ordinal = 0;
  if (colon != std::string::npos) std::from_chars(id.data() + colon + 1, id.data() + id.size(), ordinal);
  return (*backend)->open(ordinal);
}

}  // namespace attnbench::cli
