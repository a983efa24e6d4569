// Names of backends to backends.
#include "kernels/catalog.hpp"

#include <charconv>
#include <string>

namespace attnbench::kernels {

base::Result<const Backend*> find_backend(std::string_view name) {
  if (name == "cpu") return &cpu_backend();
  if (name == "mock") return &mock_backend();
  if (name == "cuda") return cuda_backend();
  return base::fail(base::ErrorKind::kUsage, "there is no backend '" + std::string(name) + "'; use cpu, cuda or mock");
}

base::Result<std::unique_ptr<Device>> open_device(const std::string& id) {
  const std::size_t colon = id.find(':');
  const auto backend = find_backend(id.substr(0, colon));
  if (!backend) return tl::unexpected(backend.error());
  int ordinal = 0;
  if (colon != std::string::npos) std::from_chars(id.data() + colon + 1, id.data() + id.size(), ordinal);
  return (*backend)->open(ordinal);
}

}  // namespace attnbench::kernels
