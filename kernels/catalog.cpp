// Names of backends to backends.
#include "kernels/catalog.hpp"

#include <string>

namespace attnbench::kernels {

base::Result<const Backend*> find_backend(std::string_view name) {
  if (name == "cpu") return &cpu_backend();
  if (name == "mock") return &mock_backend();
  if (name == "cuda") return cuda_backend();
  return base::fail(base::ErrorKind::kUsage, "there is no backend '" + std::string(name) + "'; use cpu, cuda or mock");
}

}  // namespace attnbench::kernels
