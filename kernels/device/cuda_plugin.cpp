// Opens the CUDA backend at run time, so that the program starts fast and runs where there is no driver.
#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "kernels/catalog.hpp"

namespace attnbench::kernels {
namespace {

constexpr const char* kLibrary = "libattnbench_cuda.so";

std::string beside_the_program() {
  char path[4096];
  const auto length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return {};
  const std::string program(path, static_cast<std::size_t>(length));
  return program.substr(0, program.rfind('/') + 1) + kLibrary;
}

base::Result<const Backend*> open_plugin() {
  using base::ErrorKind;
  using base::fail;
  const std::string beside = beside_the_program();
  if (access(beside.c_str(), F_OK) != 0) {
    return fail(ErrorKind::kAbsent, "the CUDA backend was not built: there is no " + beside +
                                        "; install the CUDA toolkit (nvcc) and build again");
  }
  void* library = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return fail(ErrorKind::kAbsent, "the CUDA backend cannot be loaded: " + std::string(dlerror()));
  const auto entry = reinterpret_cast<PluginEntryFunction>(dlsym(library, kPluginSymbol));
  if (entry == nullptr) return fail(ErrorKind::kAbsent, beside + " is not a CUDA backend of this program");
  const PluginEntry* plugin = entry();
  if (std::string(plugin->build_id) != ATTNBENCH_BUILD_ID) {
    return fail(ErrorKind::kAbsent, beside + " belongs to another build (" +
                                        std::string(plugin->build_id).substr(0, 12) + ", this program is " +
                                        std::string(ATTNBENCH_BUILD_ID).substr(0, 12) + "); build both again");
  }
  return plugin->backend;
}

}  // namespace

base::Result<const Backend*> cuda_backend() {
  static const base::Result<const Backend*> backend = open_plugin();
  return backend;
}

}  // namespace attnbench::kernels
